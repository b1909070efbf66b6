package watching

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
)

// watcher is a watcher of these tests.
type watcher struct{ query lockkeeper.Query }

// heldAt is the status of a hold.
func heldAt(session string, id uint64, paths ...lockkeeper.Path) *lockkeeper.Status {
	st := &lockkeeper.Status{Ref: lockkeeper.Ref{Session: session, ID: id}, State: lockkeeper.Held}
	for _, path := range paths {
		st.Grants = append(st.Grants, lockkeeper.Grant{Target: lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive}})
	}
	return st
}

// TestWatchersOfOthersAreNotLookedAt: a change looks at the watchers of its own claim, session and
// paths, however many there are of others.
func TestWatchersOfOthersAreNotLookedAt(t *testing.T) {
	var x Index[*watcher]
	var all []*watcher
	watch := func(q lockkeeper.Query) {
		w := &watcher{q}
		all = append(all, w)
		x.Add(q, w)
	}
	for i := range 1000 {
		watch(lockkeeper.Query{Session: fmt.Sprint("nobody", i)})
		watch(lockkeeper.Query{Session: "nobody"})
		watch(lockkeeper.Query{Ref: lockkeeper.Ref{Session: "ann", ID: uint64(i) + 2}})
		watch(lockkeeper.Query{Meets: lockkeeper.Path(fmt.Sprint("db/", i))})
	}
	for _, q := range []lockkeeper.Query{
		{}, {Session: "ann"}, {Ref: lockkeeper.Ref{Session: "ann", ID: 1}},
		{Meets: "db"}, {Meets: "db/x"}, {Meets: "db/x/y/z"},
	} {
		watch(q)
	}
	looked := 0
	for range x.candidates(heldAt("ann", 1, "db/x/y")) {
		looked++
	}
	if looked != 6 {
		t.Errorf("%d of %d watchers are looked at, want 6", looked, len(all))
	}
	if x.MayWatch(lockkeeper.Ref{Session: "bob", ID: 1}) != true {
		t.Error("somebody watches everything, and is not found")
	}
	for _, w := range all {
		x.Remove(w)
		x.Remove(w)
	}
	if n := len(x.all) + len(x.everything) + len(x.refs) + len(x.sessions) + len(x.paths.at) + len(x.paths.below); n != 0 {
		t.Errorf("%d entries are left of watchers that have gone", n)
	}
}

// TestIndexFindsEveryWatcher compares the index with asking each watcher, at random.
func TestIndexFindsEveryWatcher(t *testing.T) {
	r := testmode.Rand(t)
	word := func() string { return string(rune('a' + r.IntN(3))) }
	path := func() lockkeeper.Path {
		if r.IntN(10) == 0 {
			return lockkeeper.Root
		}
		p := word()
		for range r.IntN(4) {
			p += "/" + word()
		}
		return lockkeeper.Path(p)
	}
	var x Index[*watcher]
	var all []*watcher
	for range 2000 {
		var q lockkeeper.Query
		if r.IntN(3) == 0 {
			q.Session = word()
		}
		if r.IntN(4) == 0 {
			q.Ref = lockkeeper.Ref{Session: word(), ID: r.Uint64N(3)}
		}
		if r.IntN(2) == 0 {
			q.Meets = path()
		}
		w := &watcher{q}
		x.Add(q, w)
		all = append(all, w)
		if r.IntN(2) == 0 {
			i := r.IntN(len(all))
			x.Remove(all[i])
			all = slices.Delete(all, i, i+1)
		}
		st := heldAt(word(), r.Uint64N(3), path(), path())
		found := make(map[*watcher]bool)
		for w := range x.Selecting(st) {
			found[w] = true
		}
		for _, w := range all {
			if w.query.Selects(st) != found[w] {
				t.Fatalf("%+v, watched by %+v: found %t", st, w.query, found[w])
			}
			delete(found, w)
		}
		if len(found) > 0 {
			t.Fatal("watchers are found that have gone")
		}
	}
}
