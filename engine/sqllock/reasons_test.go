package sqllock

import (
	"context"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// expire sets the end of a session to an hour ago, as if no process had run since.
func expire(t *testing.T, db database, session string) {
	t.Helper()
	db.mustExec(t, "UPDATE {sessions} SET deadline_ns = deadline_ns - 2 * 3600000000000 WHERE id = '"+session+"'")
}

// reasonAfter returns the reason that a watcher of e receives for the end of claim 1 of session a.
// between runs when the watcher knows the hold; meanwhile the watcher receives nothing.
func reasonAfter(t *testing.T, e *Engine, between func()) lockkeeper.Reason {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	for st, err := range e.List(ctx, lockkeeper.Query{Follow: true, Meets: "db"}) {
		switch {
		case err != nil:
			t.Fatal(err)
		case st.Ref != lockkeeper.Ref{Session: "a", ID: 1}:
		case st.State == lockkeeper.Held:
			between()
		case st.State == lockkeeper.Ended:
			return st.Reason
		}
	}
	t.Fatal("the watcher never receives the end")
	return lockkeeper.NoReason
}

// polls waits until the poller of e has read what is true now.
func polls(t *testing.T, e *Engine) {
	t.Helper()
	w := e.poller.Join(lockkeeper.Query{})
	defer w.Leave()
	if m := w.Next(bounded(t)); m == nil || m.err != nil {
		t.Fatalf("the poller reads %+v", m)
	}
}

// R17: watchers of other processes receive the reason of every end, however late they read, and
// whatever the table has forgotten by then (R16).
func TestWatchersOfOtherProcessesGetReasons(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(t *testing.T, holder *Engine, key lockkeeper.Key, db database)
		want lockkeeper.Reason
	}{
		"a session expires, and nobody wants its hold": {
			func(t *testing.T, _ *Engine, _ lockkeeper.Key, db database) { expire(t, db, "a") },
			lockkeeper.Expired,
		},
		"a session expires and begins again before the watcher reads": {
			func(t *testing.T, holder *Engine, _ lockkeeper.Key, db database) {
				expire(t, db, "a")
				holding(t, holder, "b", "db")
				if _, err := holder.Attach(t.Context(), lockkeeper.Session{ID: "a", TTL: time.Hour}, nil); err != nil {
					t.Fatal(err)
				}
			},
			lockkeeper.Expired,
		},
		"the watcher reads long after the release": {
			func(t *testing.T, holder *Engine, key lockkeeper.Key, db database) {
				key.LowestOpen = 2
				if err := holder.End(t.Context(), key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
					t.Fatal(err)
				}
				db.mustExec(t, "UPDATE {claims} SET ended_ns = ended_ns - 30000000000 WHERE state = 'ended'")
			},
			lockkeeper.Released,
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, url string) {
				holder, e, db := begun(t, url), begun(t, url), opened(t, url)
				key := holding(t, holder, "a", "db")
				reason := reasonAfter(t, e, func() {
					test.end(t, holder, key, db)
					polls(t, e)
				})
				if reason != test.want {
					t.Errorf("the watcher receives %s, want %s", reason, test.want)
				}
			})
		})
	}
}

// TestFirstWatcherWaitsForBusyTransactions: a transaction that keeps its latches for longer than others
// wait for one does not cost a watcher the reasons of ends.
func TestFirstWatcherWaitsForBusyTransactions(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		holder, e, db := begun(t, url), begun(t, url), opened(t, url)
		holding(t, holder, "a", "db")
		told := make(chan error, 1)
		atWork(t, url, "other", func() {
			go func() {
				for _, err := range e.List(bounded(t), lockkeeper.Query{Follow: true, Meets: "db"}) {
					told <- err
					return
				}
			}()
			<-time.After(5 * latchPatience)
		})
		if err := <-told; err != nil {
			t.Fatal(err)
		}
		if n := count(t, db, "watchers"); n != 1 {
			t.Errorf("%d processes with watchers are announced, want 1", n)
		}
	})
}
