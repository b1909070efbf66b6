package disklock

import (
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
)

// setRefusing starts refusing commands because of t, or stops if t is nil. Only the writer and the
// journal's constructor call it.
func (j *journal) setRefusing(t *refusing) {
	was := j.refusing.Swap(t)
	if (was == nil) == (t == nil) {
		return
	}
	if t != nil {
		close(*j.stuck.Load())
	} else {
		stuck := make(chan struct{})
		j.stuck.Store(&stuck)
		j.safe = nil
	}
	if changed := j.changed.Load(); changed != nil {
		(*changed)()
	}
}

// readSafe reads the safe table from the disk, which takes as long as Open. The writer calls it
// while the disk is full, when it has no other work.
func (j *journal) readSafe() safeTable {
	if j.safe == nil {
		t, err := j.store.replayed(j.seq)
		if err != nil {
			return safeTable{err: err} // the next request tries again
		}
		j.safe = &safeTable{table: t}
	}
	return *j.safe
}

// refusing is a reason for which Admit refuses commands.
type refusing struct {
	err     *lockkeeper.Error
	passing bool // the reason may end; until then Admit still accepts commands without relies
}

// unavailable returns an ErrUnavailable with this detail.
func unavailable(cause error, format string, args ...any) *lockkeeper.Error {
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: fmt.Sprintf(format, args...), Cause: cause}
}

// describe explains an error to a person, and says what the person can do.
func describe(path string, err error) string {
	return dbfolder.Describe(path, err, "see docs/engines/disk.md for what can be done")
}
