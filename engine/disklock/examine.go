package disklock

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Bounds of the free space. SQLite's log grows to some megabytes, and the files have two snapshots
// for a while.
const (
	littleRoom = 256 << 20
	noRoom     = 8 << 20
)

// Examine implements lockkeeper.Examiner. It does not read the database, because Open has checked
// all of it.
func (e *Engine) Examine(context.Context) []lockkeeper.Finding {
	return []lockkeeper.Finding{e.examineFiles(), e.examineJournal(), e.examineRoom()}
}

func (e *Engine) examineFiles() lockkeeper.Finding {
	f := lockkeeper.Finding{Check: "file"}
	sizes := make([]int64, 2)
	for i, path := range []string{e.folder.journal(), e.folder.log()} {
		info, err := os.Stat(path)
		if err != nil {
			f.Grade, f.Detail = lockkeeper.Broken, fmt.Sprintf("%s is gone (%v)", path, err)
			f.Remedy = "it was removed or replaced while it was in use, and what happens now is lost: have clients stop, and " +
				"put the files back"
			return f
		}
		sizes[i] = info.Size()
	}
	f.Detail = fmt.Sprintf("%s, %d kB and %d kB of log, schema version %d", e.folder.journal(), sizes[0]>>10, sizes[1]>>10,
		schemaVersion)
	return f
}

func (e *Engine) examineJournal() lockkeeper.Finding {
	j := e.journal
	f := lockkeeper.Finding{Check: "journal"}
	s := &j.stats
	last := "never"
	if ns := s.last.Load(); ns != 0 {
		last = time.Since(time.Unix(0, ns)).Round(time.Millisecond).String() + " ago"
	}
	f.Detail = fmt.Sprintf("%d entries in %d syncs since it was opened, the last %s", s.entries.Load(), s.syncs.Load(),
		last)
	switch t := j.refusing.Load(); {
	case t != nil && t.passing:
		f.Grade, f.Detail, f.Remedy = lockkeeper.Broken, t.err.Error(), "make room; it goes on by itself"
	case t != nil:
		f.Grade, f.Detail, f.Remedy = lockkeeper.Broken, t.err.Error(), "restart this process, and look for a failing disk"
	case s.mark.Load() != nil:
		f.Grade, f.Remedy = lockkeeper.Doubtful, "look at what is wrong with the file: without it a loss may not be "+
			"noticed at the next opening"
		f.Detail = fmt.Sprintf("%s could not be written: %v", e.folder.mark(), *s.mark.Load())
	}
	return f
}

func (e *Engine) examineRoom() lockkeeper.Finding {
	f := lockkeeper.Finding{Check: "free space"}
	room, err := freeRoom(e.folder.path)
	f.Detail = fmt.Sprintf("%d MB are free", room>>20)
	const remedy = "make room: while the disk is full nothing new is granted"
	switch {
	case err != nil:
		f.Grade, f.Detail = lockkeeper.Doubtful, err.Error()
	case room < noRoom:
		f.Grade, f.Remedy = lockkeeper.Broken, remedy
	case room < littleRoom:
		f.Grade, f.Remedy = lockkeeper.Doubtful, remedy
	}
	return f
}
