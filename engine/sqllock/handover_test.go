package sqllock

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// attachAgain attaches the session "moves" under an epoch, and returns the notifications that it
// gets.
func attachAgain(t *testing.T, e *Engine, epoch uint64, named ...uint64) (lockkeeper.Key, chan lockkeeper.Status) {
	t.Helper()
	told := make(chan lockkeeper.Status, 100)
	lease, err := e.Attach(t.Context(), lockkeeper.Session{
		ID:    "moves",
		TTL:   time.Hour,
		Epoch: epoch,
		Named: named,
	}, func(all []lockkeeper.Status) {
		for _, st := range all {
			told <- st
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return lease.Key, told
}

// A session that has moved to another process is notified there, also of changes by its former
// process, which forgets it.
func TestSessionMoves(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		former, present := begun(t, url), begun(t, url)
		onlyWhenTold(former, present)
		holder := holding(t, former, "holder", "db")
		k, toldFormer := attachAgain(t, former, 0)
		w := lockkeeper.Want{
			ID:      1,
			Wait:    lockkeeper.Forever,
			Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}},
		}
		if st, err := former.Claim(t.Context(), k, w); err != nil || st.State != lockkeeper.Waiting {
			t.Fatal(st, err)
		}
		k, told := attachAgain(t, present, k.Epoch, 1)
		if err := former.End(t.Context(), holder, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
			t.Fatal(err)
		}
		select {
		case st := <-told:
			if st.State != lockkeeper.Held {
				t.Errorf("told %+v", st)
			}
		case <-bounded(t).Done():
			t.Fatal("the process that has the session is not told of its grant")
		}
		for range len(toldFormer) {
			if st := <-toldFormer; st.State != lockkeeper.Waiting {
				t.Errorf("its former process is told %+v", st)
			}
		}
		if _, here := former.local.notify("moves"); here {
			t.Error("its former process has not forgotten it")
		}
		// And back.
		k, told = attachAgain(t, former, k.Epoch, 1)
		if err := present.End(t.Context(), k, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
			t.Fatal(err)
		}
		if st := <-told; st.State != lockkeeper.Ended {
			t.Errorf("told %+v", st)
		}
	})
}

// A session that ended elsewhere without a word is forgotten, and one that somebody else
// renews is not.
func TestExpiredSessionsAreForgotten(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		e, other := begun(t, url), begun(t, url)
		k, _ := attachAgain(t, e, 0)
		past := func() {
			e.local.renewed(k.Session, k.Epoch, -time.Hour)
			e.cleanUp()
		}
		past()
		if _, here := e.local.notify("moves"); !here || len(e.local.expired(time.Now())) > 0 {
			t.Error("a session that lives is forgotten, or asked for again and again")
		}
		if err := other.End(t.Context(), k, lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
			t.Fatal(err)
		}
		past()
		if _, here := e.local.notify("moves"); here {
			t.Error("a session that ended elsewhere is not forgotten")
		}
	})
}
