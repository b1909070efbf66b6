package disklock

import (
	"context"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
	"github.com/lockkeeper/lockkeeper/internal/record"
	"github.com/lockkeeper/lockkeeper/table"
)

// A Move gives the locks of a directory to another engine, for good. No process can open the directory
// meanwhile. One goroutine at a time uses a Move.
//
//	usable ── BeginMove ──> locked, unchanged ── Retire(to) ──> Open refuses, for good;
//	   ^                           │                            BeginMove says to whom
//	   └───── Close, or kill ──────┘
//
// The other engine makes everything durable that it needs, calls Retire, and only then answers anybody.
// So no two engines ever have the locks. If the process dies in between, no engine has them, until the
// other one finds its own name in MovedTo and goes on with what it has made durable.
type Move struct {
	folder   folder
	to       string
	table    *table.Table
	restart  row  // the restart, behind the last row of the journal
	distrust bool // the system's view of the files may be wrong
}

// MovedTo returns the owner of the locks, as Retire stated it; "" while the directory has them.
func (m *Move) MovedTo() string { return m.to }

// Table returns the locks after a restart (R19); nil if the directory does not have them any more.
func (m *Move) Table() *table.Table { return m.table }

// BeginMove locks a directory, which has a journal, and reads its locks. It changes none of them. Its
// errors are those of Open.
func BeginMove(ctx context.Context, dir string) (*Move, error) {
	if there, err := dbfolder.HasContent(folder{path: dir}.journal()); err != nil || !there {
		return nil, lockkeeper.Invalid("%s has no journal: name a directory of lk serve --data or disk:DIR", dir)
	}
	f, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	m, err := f.beginMove(ctx)
	if err != nil {
		f.lock.Unlock()
		return nil, refusal(f.journal(), err)
	}
	return m, nil
}

func (f folder) beginMove(ctx context.Context) (*Move, error) {
	r, err := f.recover(ctx, options{driver: "sqlite"})
	if err != nil {
		return nil, err
	}
	if r.moved != "" {
		return &Move{folder: f, to: r.moved}, f.secureMove()
	}
	restart := table.Command{At: r.table.Now(), Op: table.Restart}
	if _, err := r.table.Step(&restart); err != nil {
		return nil, err
	}
	var entries record.Batch
	entries.Append(&restart)
	b := row{seq: r.seq + 1, count: 1, entries: entries.Bytes(), after: r.table.Counters()}
	b.sum = b.seal(r.chain)
	return &Move{folder: f, table: r.table, restart: b}, nil
}

// Retire states durably the present owner of the locks. Open refuses the directory from then on. After an error
// it is unknown whether it does; another BeginMove finds out.
func (m *Move) Retire(to string) error {
	if to == "" || m.table == nil {
		return lockkeeper.Invalid("%s: its locks can be moved once, and to somebody", m.folder.path)
	}
	err := m.retire(to)
	if err == nil {
		err = m.folder.secureMove()
	}
	if err != nil {
		m.distrust = !dbfolder.IsFull(err)
		return refusal(m.folder.journal(), err)
	}
	return nil
}

// retire writes the present owner of the locks, and a row, so that the mark rises.
func (m *Move) retire(to string) error {
	s, err := openStore(m.folder.journal(), dbfolder.Use{Alone: true})
	if err != nil {
		return err
	}
	defer s.close()
	for _, do := range []func() error{
		s.prepare,
		func() error { return s.Exec("BEGIN IMMEDIATE") },
		func() error { return s.append(&m.restart) },
		func() error {
			return s.Exec("UPDATE meta SET state = ?, writer = ?, moved = ?", stateClosed, dbfolder.Writer(), to)
		},
		func() error { return s.Exec("COMMIT") },
	} {
		if err := do(); err != nil {
			_ = s.Exec("ROLLBACK")
			return err
		}
	}
	return nil
}

// secureMove makes sure that a retired directory stays retired: also if its log is removed later, if
// an older copy of the database is put back beside the mark, and if the process that wrote the
// retirement died before it was durable.
func (f folder) secureMove() error {
	s, err := openStore(f.journal(), dbfolder.Use{Alone: true})
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.Checkpoint(true); err != nil {
		return err
	}
	var seq, fences uint64
	if err := s.Query("SELECT seq, fences FROM journal ORDER BY seq DESC LIMIT 1", &seq, &fences); err != nil {
		return err
	}
	mark, err := dbfolder.OpenMarker(f.mark(), seq, fences)
	if err != nil {
		return err
	}
	if err := mark.Close(); err != nil {
		return err
	}
	return dbfolder.SyncFolder(f.path)
}

// Close unlocks the directory. If Retire failed other than by a full disk, it stays locked until the
// process ends, as with [Engine.Close].
func (m *Move) Close() {
	if !m.distrust {
		m.folder.lock.Unlock()
	}
}

func (f folder) refuseMoved(to string) error {
	return lockkeeper.Invalid("%s has no locks any more: they were moved to %s: start that, and see "+
		"docs/engines/cluster-disk.md if it can't be started", f.path, to)
}
