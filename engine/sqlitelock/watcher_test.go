package sqlitelock

import (
	"errors"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// TestWatchersOfOthersDoNotRead: a change wakes the watchers that it concerns, and those that have
// received the blockers of a claim; all others cost nothing.
func TestWatchersOfOthersDoNotRead(t *testing.T) {
	e := openReal(t, file(t))
	defer e.Close()
	followers := make(map[string]*watcher)
	for name, q := range map[string]lockkeeper.Query{
		"everything":           {Brief: true},
		"its session":          {Session: "ann"},
		"its path":             {Meets: "db/x", Brief: true},
		"another session":      {Session: "nobody"},
		"another path":         {Meets: "elsewhere", Brief: true},
		"a claim that waits":   {Ref: lockkeeper.Ref{Session: "bob", ID: 1}},
		"a claim, but not why": {Ref: lockkeeper.Ref{Session: "bob", ID: 1}, Brief: true},
	} {
		f := &watcher{wakeup: make(chan struct{}, 1)}
		f.waiting.Store(name == "a claim that waits")
		e.mu.Lock()
		e.watchers.Add(q, f)
		e.mu.Unlock()
		followers[name] = f
	}
	ann := attach(t, e, "ann", time.Minute, nil)
	claim(t, e, ann, exclusive(1, "db"))
	<-followers["everything"].wakeup
	delete(followers, "everything")
	e.mu.Lock() // all are woken, or none is
	defer e.mu.Unlock()
	for name, f := range followers {
		want := name == "its session" || name == "its path" || name == "a claim that waits"
		if rung := len(f.wakeup) > 0; rung != want {
			t.Errorf("the follower of %s is woken: %t, want %t", name, rung, want)
		}
	}
}

// TestUnreadWatcherIsBounded: the engine keeps a bounded number of ends for a watcher that does not
// read; then the watcher ends with an error.
func TestUnreadWatcherIsBounded(t *testing.T) {
	e := openReal(t, file(t))
	defer e.Close()
	ann := attach(t, e, "ann", time.Minute, nil)
	claim(t, e, ann, exclusive(1, "db"))
	var last error
	for st, err := range e.List(bounded(t), lockkeeper.Query{Session: "ann", Follow: true}) {
		if last = err; err != nil {
			break
		}
		ended := news{ended: []lockkeeper.Status{st}}
		if err := e.call(bounded(t), true, func(*transaction) {
			for id := range uint64(mostAtAll + 1) {
				ended.ended[0].Ref.ID = id + 2
				e.deliverEnds(&ended)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if !errors.Is(last, lockkeeper.ErrUnavailable) {
		t.Errorf("the follower ends with %v, want ErrUnavailable", last)
	}
}
