package disklock

import (
	"context"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
)

// recover checks the log, the database and the mark against each other, and restores the table. It
// creates the database of a new folder. It does not change a folder that it refuses.
func (f folder) recover(ctx context.Context, o options) (*recovered, error) {
	m, err := dbfolder.ReadMark(f.mark())
	if err != nil {
		return nil, lockkeeper.Invalid("%s is damaged: %v: put it back; if you know that nothing was lost, see "+
			"docs/engines/disk.md", f.mark(), err)
	}
	log, err := dbfolder.ExamineLog(f.log())
	if err != nil {
		return nil, lockkeeper.Invalid("%s is damaged: %v: grants that were answered may be lost; nothing was changed; see "+
			"docs/engines/disk.md for what can be done", f.log(), err)
	}
	there, err := dbfolder.HasContent(f.journal())
	if err != nil {
		return nil, err
	}
	if !there && (m != nil || log.Size > 0) {
		return nil, lockkeeper.Invalid("%s is missing or empty, though there is what belongs to it: put it back, or "+
			"remove all files of the directory to begin again, with fences from 1", f.journal())
	}
	if there && log.Missing {
		if err := f.checkMissingLog(ctx, o, m); err != nil {
			return nil, err
		}
	}
	s, err := openStore(f.journal(), dbfolder.Use{Driver: o.driver, Careless: o.careless})
	if err != nil {
		return nil, err
	}
	r, err := s.read(ctx)
	if err == nil && r.moved == "" {
		err = f.compare(r, m)
	}
	if err != nil {
		s.CloseUnchanged()
		return nil, err
	}
	return r, s.close()
}

// read checks and replays the database. It creates the tables if the database is empty.
func (s *store) read(ctx context.Context) (*recovered, error) {
	fresh, err := s.Identify(schema)
	if err == nil && fresh {
		err = s.create()
	}
	if err != nil {
		return nil, err
	}
	return s.recover(ctx)
}

// compare refuses a journal that ends before its mark or has no mark: it may lack safe rows.
func (f folder) compare(r *recovered, m *dbfolder.Mark) error {
	switch {
	case m == nil && r.seq > 0:
		return lockkeeper.Invalid("%s is missing, so it can't be told whether the journal, which ends with row %d, has "+
			"all that was safe: put it back; if you know that nothing was lost, see docs/engines/disk.md", f.mark(), r.seq)
	case m != nil && r.seq < m.Seq:
		return lockkeeper.Invalid("%s ends with row %d and fence %d, though row %d and fence %d were safe, as %s says: "+
			"something was lost, or this is an older copy; fences would be given twice; nothing was changed; see "+
			"docs/engines/disk.md for what can be done",
			f.journal(), r.seq, r.table.Counters().Fences, m.Seq, m.Value, f.mark())
	}
	return nil
}

// checkMissingLog checks a database without a log. The engine never removes the log, so somebody
// did. The database is complete without it if the engine closed the database, or if the mark is of
// this boot, and so exact, and the database has its row.
func (f folder) checkMissingLog(ctx context.Context, o options, m *dbfolder.Mark) error {
	s, err := openStore(f.journal(), dbfolder.Use{Driver: o.driver, Careless: true, Still: true})
	if err != nil {
		return err
	}
	defer s.close()
	var state string
	var last uint64
	if fresh, err := s.Identify(schema); err != nil || fresh {
		return err
	}
	if err := s.Query("SELECT state, (SELECT max(n) FROM (SELECT max(seq) AS n FROM journal UNION ALL SELECT max(seq) "+
		"FROM snapshots)) FROM meta", &state, &last); err != nil {
		return err
	}
	if state == stateClosed || m.Waived() || m == nil && last == 0 || m.ThisBoot() && last >= m.Seq {
		return nil
	}
	return lockkeeper.Invalid("%s is missing, though %s was not closed: what was safe in it is lost; put it back; see "+
		"docs/engines/disk.md", f.log(), f.journal())
}
