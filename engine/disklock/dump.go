package disklock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/internal/story"
	"github.com/lockkeeper/lockkeeper/table"
)

// Dump writes the journal of a directory as lines of text: the snapshot, then the entries after it.
// It changes nothing, because it copies the files and reads the copy. It quotes text that is not
// printable.
//
// If a process has the directory open, Dump returns an ErrUnavailable. If the journal is damaged,
// Dump writes the content before the damage, and returns an error with the position of the damage.
func Dump(ctx context.Context, dir string, w io.Writer) error {
	original := folder{path: filepath.Clean(dir)}
	copied, err := original.copy()
	if err != nil {
		return err
	}
	defer os.RemoveAll(copied.path)
	d := &dumper{out: bufio.NewWriter(w)}
	d.printf("journal %s\n", original.journal())
	err = d.dump(ctx, copied)
	if flushed := d.out.Flush(); flushed != nil {
		return flushed // the reader has closed w, such as head
	}
	if err != nil {
		return refusal(original.journal(), err)
	}
	return nil
}

// copy copies the journal into a new temporary directory. It locks f during the copy, so that no
// process can open it.
func (f folder) copy() (copied folder, err error) {
	if there, err := dbfolder.HasContent(f.journal()); err != nil || !there {
		return folder{}, lockkeeper.Invalid("%s has no journal: name a directory of lk serve --data or disk:DIR", f.path)
	}
	lock, inUse, err := dbfolder.LockCopied(f.path)
	switch {
	case err != nil:
		return folder{}, unavailable(err, "%s can't be locked", f.path)
	case inUse != "":
		return folder{}, unavailable(nil, "%s is in use by %s, so its journal can't be read: end that process, or stop it "+
			"for a moment and dump a copy (kill -STOP PID; cp -r %[1]s COPY; kill -CONT PID; lk dump disk:COPY)",
			f.path, inUse)
	}
	defer lock.Unlock()
	to, err := os.MkdirTemp("", "lockkeeper-dump-")
	if err != nil {
		return folder{}, unavailable(err, "no room for a copy of %s", f.path)
	}
	copied = folder{path: to}
	for _, file := range [][2]string{{f.journal(), copied.journal()}, {f.log(), copied.log()}} {
		if err := copyFile(file[0], file[1]); err != nil && !errors.Is(err, fs.ErrNotExist) {
			os.RemoveAll(to)
			return folder{}, unavailable(err, "%s can't be copied", file[0])
		}
	}
	return copied, nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

type dumper struct{ out *bufio.Writer }

func (d *dumper) printf(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }

// dump writes the snapshot and the rows of the folder, each up to its first damage.
func (d *dumper) dump(ctx context.Context, f folder) error {
	_, logDamage := dbfolder.ExamineLog(f.log())
	if logDamage != nil {
		logDamage = dbfolder.Damagef("%s: %v", filepath.Base(f.log()), logDamage)
	}
	s, err := openStore(f.journal(), dbfolder.Use{Careless: true})
	if err != nil {
		return err
	}
	defer s.close()
	if fresh, err := s.Identify(schema); err != nil || fresh {
		return errors.Join(err, logDamage)
	}
	r, err := s.meta()
	if err != nil {
		return err
	}
	d.printf("state %s, opened last by %s\n", r.state, r.writer)
	if r.moved != "" {
		d.printf("moved to %s\n", r.moved)
	}
	if r.header, err = s.latest(); err != nil {
		return err
	}
	return errors.Join(d.snapshot(ctx, s, &r.header), d.rows(ctx, s, &r.header), logDamage, s.Check(ctx))
}

func (d *dumper) snapshot(ctx context.Context, s *store, h *header) error {
	head, err := record.DecodeHeader(h.head)
	if err != nil {
		return dbfolder.Damagef("table snapshots, number %d: %v", h.number, err)
	}
	d.printf("snapshot %d: row=%d rules=%d records=%d%s\n", h.number, h.seq, head.Rules, head.Records,
		countersText(&head.Counters))
	return s.records(ctx, h, func(position int, b []byte) error {
		var one table.Snapshot
		if err := record.AddRecord(&one, b); err != nil {
			return dbfolder.Damagef("table records, snapshot %d, position %d: %v", h.number, position, err)
		}
		for i := range one.Sessions {
			d.printf("  session %s\n", story.Record(&one.Sessions[i]))
		}
		for i := range one.Claims {
			d.printf("  claim %s\n", story.Record(&one.Claims[i]))
		}
		for i := range one.Freezes {
			d.printf("  freeze %s\n", story.Record(&one.Freezes[i]))
		}
		for i := range one.HoldTimes {
			d.printf("  hold-time %s\n", story.Record(&one.HoldTimes[i]))
		}
		return nil
	})
}

func (d *dumper) rows(ctx context.Context, s *store, h *header) error {
	return s.rows(ctx, h, func(r *row) error {
		d.printf("row %d: entries=%d%s\n", r.seq, r.count, countersText(&r.after))
		entries, err := record.ReadBatch(r.entries)
		if err != nil {
			return dbfolder.Damagef("table journal, row %d: %v", r.seq, err)
		}
		n := 0
		for ; entries.More(); n++ {
			c, err := entries.Next()
			if err != nil {
				return dbfolder.Damagef("table journal, row %d, entry %d: %v", r.seq, n+1, err)
			}
			d.entry(&c, entries.Rules())
		}
		if n != r.count {
			return dbfolder.Damagef("table journal, row %d has %d entries, it should have %d", r.seq, n, r.count)
		}
		return ctx.Err()
	})
}

// countersText returns the counters that are not zero, each after a space.
func countersText(c *table.Counters) string {
	if *c == (table.Counters{}) {
		return ""
	}
	return " " + story.Record(c)
}

func (d *dumper) entry(c *table.Command, rules uint64) {
	d.printf("  %s", story.Format(*c))
	if c.Op == table.Pass && c.Key != (lockkeeper.Key{}) {
		d.printf(" # stated: %s", story.Record(&c.Key))
	}
	if rules != table.RulesVersion {
		d.printf(" # rules %d", rules)
	}
	d.printf("\n")
}
