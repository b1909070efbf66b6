package sqllock

import (
	"fmt"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/watching"
)

// One read of the database serves all watchers of a process, and each receives what it watches.
func TestWatchersShareReads(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		e := begun(t, url)
		const n = 50
		queries := make([]lockkeeper.Query, n)
		all := make([]*watching.Watcher[moment], n)
		for i := range all {
			id := fmt.Sprint("s", i)
			holding(t, e, id, "db")
			queries[i].Ref = lockkeeper.Ref{Session: id, ID: 1}
			all[i] = e.poller.Join(queries[i])
		}
		moments := make(map[*moment]bool)
		for i, w := range all {
			m := w.Next(t.Context())
			if m == nil || m.err != nil {
				t.Fatalf("watcher %d: %+v", i, m)
			}
			moments[m] = true
			if found, _ := m.pick(queries[i]); len(found) != 1 || found[0].Ref != queries[i].Ref || found[0].Position != i {
				t.Errorf("watcher %d receives %+v", i, found)
			}
		}
		if len(moments) > n/5 {
			t.Errorf("%d reads for %d watchers", len(moments), n)
		}
		for _, w := range all {
			w.Leave()
		}
		e.poller.Wait()
		if e.poller.Watched() {
			t.Error("watchers are left")
		}
	})
}

// A watcher gets an error when the engine is closed.
func TestWatcherOfClosedEngineEnds(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		e := begun(t, url)
		holding(t, e, "a", "db")
		told := 0
		for _, err := range e.List(t.Context(), lockkeeper.Query{Follow: true}) {
			if told++; told == 1 && err == nil {
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err == nil {
				t.Error("it is told of nothing")
			}
		}
		if told != 2 {
			t.Errorf("told %d times, want the claim and the end", told)
		}
	})
}

// While nothing happens, watchers cost the read of one number. Soon after any process has begun a
// transaction, the poller reads everything again.
func TestWatchersOfAnIdleDatabaseReadRarely(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		e, other := begun(t, url), begun(t, url)
		key := holding(t, other, "a", "db")
		var last stillness
		look := func(when string, want bool) {
			t.Helper()
			if got := e.still(&last); got != want {
				t.Errorf("%s: nothing can have changed: %t, want %t", when, got, want)
			}
		}
		look("at first", false)
		look("when a transaction may be under way", false)
		last.since = last.since.Add(-2 * watchStill)
		look("later", true)
		if _, err := other.Renew(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		look("after a renewal", true)
		holding(t, other, "b", "db")
		look("after a claim", false)
		last.since = last.since.Add(-2 * watchStill)
		look("later again", true)
		last.looked = last.looked.Add(-2 * watchAnyway)
		look("when it has not looked for long", false)
	})
}

// A watcher receives no end from long before it began, whatever other watchers select.
func TestWatchersGetNoOldEnds(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		e := begun(t, url)
		follow := func(q lockkeeper.Query) <-chan lockkeeper.Status {
			q.Follow = true
			told := make(chan lockkeeper.Status, 16)
			ctx := t.Context()
			go func() {
				for st, err := range e.List(ctx, q) {
					if err == nil {
						told <- st
					}
				}
			}()
			return told
		}
		m := join(t, e, "s", cutTTL)
		all := follow(lockkeeper.Query{Meets: "a"})
		m.claim(exclusive(1, 0, "a"), lockkeeper.Held)
		for st := range all {
			if m.release(1); st.State == lockkeeper.Held {
				break
			}
		}
		opened(t, url).mustExec(t, "UPDATE {claims} SET ended_ns = ended_ns - 3600000000000 WHERE state = 'ended'")
		m.claim(exclusive(2, 0, "a"), lockkeeper.Held)
		late := follow(lockkeeper.Query{Meets: "a"})
		<-late
		<-follow(lockkeeper.Query{Session: "s"})
		m.release(2)
		if st := <-late; st.Ref.ID != 2 {
			t.Errorf("told that %s has ended, which it never knew", st.Ref)
		}
	})
}
