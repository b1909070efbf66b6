package disklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/table"
)

// recovered is the content of a database, after all checks.
type recovered struct {
	table   *table.Table
	header  header // the restored snapshot
	seq     uint64 // the last row
	chain   uint64 // the sum of the last row
	entries int    // number of replayed entries
	path    string // path of the database
	state   string // state in which the last process left the database: open or closed
	writer  string // the version of Lockkeeper that opened the database last
	moved   string // the owner of the locks now; then there is no table. Empty while the directory has them
}

// recover checks and replays the whole database. It changes nothing. If the locks were moved, it does
// not replay them.
func (s *store) recover(ctx context.Context) (*recovered, error) {
	if err := s.Check(ctx); err != nil {
		return nil, err
	}
	if err := s.CheckForm(schema); err != nil {
		return nil, err
	}
	r, err := s.meta()
	if err != nil {
		return nil, err
	}
	if r.moved != "" {
		return r, nil
	}
	return r, s.load(ctx, r)
}

// meta reads the state in which the last process left the database.
func (s *store) meta() (*recovered, error) {
	r := &recovered{path: s.Path}
	if err := s.Query("SELECT state, writer, moved FROM meta WHERE id = 1", &r.state, &r.writer, &r.moved); err != nil {
		return nil, dbfolder.Damagef("table meta: %v", err)
	}
	if r.state != stateOpen && r.state != stateClosed {
		return nil, dbfolder.Damagef("table meta: state %q is neither open nor closed", r.state)
	}
	return r, nil
}

// load restores the newest snapshot and replays the rows after it.
func (s *store) load(ctx context.Context, r *recovered) (err error) {
	if r.header, err = s.latest(); err != nil {
		return err
	}
	if r.table, err = s.restore(ctx, r); err != nil {
		return err
	}
	r.seq, r.chain = r.header.seq, r.header.chain
	return s.rows(ctx, &r.header, func(b *row) error {
		r.seq, r.chain = b.seq, b.sum
		return r.apply(b)
	})
}

// replayed returns the table after the rows up to seq.
func (s *store) replayed(seq uint64) (*table.Table, error) {
	r := &recovered{path: s.Path, writer: dbfolder.Writer()}
	err := s.load(context.Background(), r)
	if err == nil && r.seq != seq {
		err = dbfolder.Damagef("the last row is %d, it should be %d", r.seq, seq)
	}
	return r.table, err
}

const (
	stateOpen   = "open"
	stateClosed = "closed"
)

// restore makes the table of the snapshot r.header.
func (s *store) restore(ctx context.Context, r *recovered) (*table.Table, error) {
	where := fmt.Sprintf("table snapshots, number %d", r.header.number)
	head, err := record.DecodeHeader(r.header.head)
	switch {
	case err != nil:
		return nil, r.unreadable(where, err)
	case head.Rules > table.RulesVersion:
		return nil, r.laterRules(where, head.Rules)
	}
	snap := table.Snapshot{Counters: head.Counters}
	if err := s.records(ctx, &r.header, func(position int, b []byte) error {
		if err := record.AddRecord(&snap, b); err != nil {
			return dbfolder.Damagef("table records, snapshot %d, position %d: %v", r.header.number, position, err)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if n := record.Records(&snap); uint64(n) != head.Records {
		return nil, dbfolder.Damagef("table records, snapshot %d has %d records, it should have %d", r.header.number, n,
			head.Records)
	}
	t, err := table.Restore(snap)
	if err != nil {
		return nil, dbfolder.Damagef("snapshot %d: %v", r.header.number, err)
	}
	return t, nil
}

// records yields the records of a snapshot in order. It returns damage if their digest is not that
// of the header.
func (s *store) records(ctx context.Context, h *header, yield func(position int, b []byte) error) error {
	rows, err := s.Conn.QueryContext(ctx, "SELECT position, record FROM records WHERE number = ? ORDER BY position",
		int64(h.number))
	if err != nil {
		return err
	}
	defer rows.Close()
	n, digest := 0, uint64(0)
	for ; rows.Next(); n++ {
		var position int
		var b []byte
		if err := rows.Scan(&position, &b); err != nil {
			return dbfolder.Damagef("table records, snapshot %d, position %d: %v", h.number, n, err)
		}
		if position != n {
			return dbfolder.Damagef("table records, snapshot %d: position %d is missing", h.number, n)
		}
		digest = digestOf(digest, b)
		if err := yield(position, b); err != nil {
			return err
		}
	}
	if rows.Err() == nil && digest != h.digest {
		return dbfolder.Damagef("table records, snapshot %d: the digest of its records is %s, it should be %s", h.number,
			hex(digest), hex(h.digest))
	}
	return rows.Err()
}

// rows yields the rows after the snapshot in order. It returns damage if a row is missing or has a
// wrong sum.
func (s *store) rows(ctx context.Context, h *header, yield func(*row) error) error {
	rows, err := s.Conn.QueryContext(ctx,
		"SELECT seq, count, entries, now_ns, fences, tickets, epochs, changes, sum FROM journal WHERE seq > ? ORDER BY seq",
		int64(h.seq))
	if err != nil {
		return err
	}
	defer rows.Close()
	seq, chain := h.seq, h.chain
	for rows.Next() {
		var b row
		var sum string
		to := append([]any{&b.seq, &b.count, &b.entries}, scanCounters(&b.after)...)
		if err := rows.Scan(append(to, &sum)...); err != nil {
			return dbfolder.Damagef("table journal, row %d: %v", seq+1, err)
		}
		if b.seq != seq+1 {
			return dbfolder.Damagef("table journal: row %d is missing, the next one is %d", seq+1, b.seq)
		}
		b.sum = b.seal(chain)
		if hex(b.sum) != sum {
			return dbfolder.Damagef("table journal, row %d: its sum is %s, by its contents and those before it should be %s",
				b.seq, sum,
				hex(b.sum))
		}
		if err := yield(&b); err != nil {
			return err
		}
		seq, chain = b.seq, b.sum
	}
	return rows.Err()
}

// apply replays one row. It returns damage if the table's counters then differ from those in the
// row.
func (r *recovered) apply(b *row) error {
	where := fmt.Sprintf("table journal, row %d", b.seq)
	entries, err := record.ReadBatch(b.entries)
	switch {
	case err != nil:
		return r.unreadable(where, err)
	case entries.Rules() != table.RulesVersion:
		return r.otherRules(where, entries.Rules())
	}
	n := 0
	for ; entries.More(); n++ {
		where := fmt.Sprintf("%s, entry %d", where, n+1)
		c, err := entries.Next()
		if err != nil {
			return r.unreadable(where, err)
		}
		if _, err := r.table.Step(&c); err != nil {
			return dbfolder.Damagef("%s is refused (%v), though it was not when %s wrote it: was that a build of other "+
				"sources with "+
				"the same version of the rules?", where, err, r.writer)
		}
	}
	if n != b.count {
		return dbfolder.Damagef("table journal, row %d has %d entries, it should have %d", b.seq, n, b.count)
	}
	if after := r.table.Counters(); after != b.after {
		return dbfolder.Damagef("table journal, row %d: after it the table's counters are %+v, they should be %+v: was "+
			"%s, which "+
			"wrote "+
			"it, a build of other sources with the same version of the rules?", b.seq, after, b.after, r.writer)
	}
	r.entries += n
	return nil
}

// refusal returns the error of Open or Dump when err prevents the use of the file.
func refusal(path string, err error) error {
	var typed *lockkeeper.Error
	if errors.As(err, &typed) {
		return typed
	}
	if errors.Is(err, dbfolder.ErrDamage) {
		return lockkeeper.Invalid("%s: %v: nothing was changed; see docs/engines/disk.md for what can be done", path, err)
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: describe(path, err), Cause: err}
}
