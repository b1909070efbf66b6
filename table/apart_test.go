package table_test

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// A path is unused while nothing meets an exclusive claim of it, also after something did.
func TestUnused(t *testing.T) {
	const path = lockkeeper.Path("a/b")
	for _, other := range []struct {
		path   lockkeeper.Path
		mode   lockkeeper.Mode
		freeze time.Duration
		unused bool
	}{
		{path: "a/b"}, {path: "a/b/c"}, {path: "a"}, {path: "a/b", mode: lockkeeper.ModeShared},
		{path: "a", mode: lockkeeper.ModeShared}, {path: "a/b/c", mode: lockkeeper.ModeShared},
		{path: "a/c", unused: true}, {path: "a/bc", unused: true}, {path: "a", freeze: time.Second},
		{path: "z", freeze: time.Second}, // a freeze of anything: the owner need not know of which paths
	} {
		tb := table.New()
		step := func(c table.Command) table.Reply {
			reply, err := tb.Step(&c)
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}
		key := step(table.Command{Op: table.Attach, Session: lockkeeper.Session{ID: "s"}}).Lease.Key
		target := lockkeeper.Target{Path: other.path, Mode: max(other.mode, lockkeeper.ModeExclusive)}
		for id := uint64(1); id < 4; id += 2 { // twice: what it leaves behind counts, too
			step(table.Command{Op: table.Claim, Key: key, Want: lockkeeper.Want{
				ID: id, Wait: lockkeeper.Forever, Targets: []lockkeeper.Target{target}, Freeze: other.freeze}})
			if other.freeze == 0 {
				step(table.Command{Op: table.Claim, Key: key, Want: lockkeeper.Want{
					ID: id + 1, Wait: lockkeeper.Forever, Targets: []lockkeeper.Target{target}}})
			}
			if unused := tb.Unused(path); unused != other.unused {
				t.Errorf("beside a claim %s it is unused: %v", target, unused)
			}
			if other.freeze > 0 {
				step(table.Command{Op: table.End, Key: key, Ending: lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: other.path}})
			} else {
				step(table.Command{Op: table.End, Key: key, Ending: lockkeeper.Ending{Kind: lockkeeper.Release, ID: id}})
				if unused := tb.Unused(path); unused != (other.unused) {
					t.Errorf("beside another claim %s it is unused: %v", target, unused)
				}
				step(table.Command{Op: table.End, Key: key, Ending: lockkeeper.Ending{Kind: lockkeeper.Release, ID: id + 1}})
			}
			if !tb.Unused(path) {
				t.Errorf("after the end of %s it is used", target)
			}
		}
	}
}
