package sqlitelock

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// watchesFiles reports whether the engine watches files. The engine's goroutine has ended its
// transactions by then.
func watchesFiles(t *testing.T, e *Engine) (any bool) {
	t.Helper()
	if err := e.call(bounded(t), true, func(*transaction) { any = e.files.watcher != nil }); err != nil {
		t.Fatal(err)
	}
	return any
}

// A process whose hold is short watches no file. One that waits does, before its claim is committed.
func TestShortHoldsAreNotWatched(t *testing.T) {
	clock, path := new(fakeClock), file(t)
	a := openFake(t, path, clock, "boot")
	k := attach(t, a, "holder", time.Minute, nil)
	claim(t, a, k, exclusive(1, "db"))
	if watchesFiles(t, a) {
		t.Error("it watches files as soon as it holds something")
	}
	b := openFake(t, path, clock, "boot")
	w := attach(t, b, "waiter", time.Minute, nil)
	if st := claim(t, b, w, exclusive(1, "db")); st.State != lockkeeper.Waiting || !watchesFiles(t, b) {
		t.Error("it does not watch files while it waits")
	}
	if err := a.End(bounded(t), k, lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
		t.Fatal(err)
	}
	if clock.advance(watchDelay); watchesFiles(t, a) {
		t.Error("it watches files of a session that it has left")
	}
}

// A process that holds something for longer is notified of what others wrote before it watched.
func TestLongHoldsAreWatched(t *testing.T) {
	clock, path := new(fakeClock), file(t)
	a, b := openFake(t, path, clock, "boot"), openFake(t, path, clock, "boot")
	notify, told := told()
	k := attach(t, a, "holder", time.Minute, notify)
	claim(t, a, k, exclusive(1, "db"))
	thief := exclusive(1, "db")
	thief.Priority, thief.Steal = 1, lockkeeper.Ask
	claim(t, b, attach(t, b, "thief", time.Minute, nil), thief)
	clock.advance(watchDelay)
	next(t, told, "asked to yield", func(st lockkeeper.Status) bool { return st.Asked != nil })
	if !watchesFiles(t, a) {
		t.Error("it does not watch files")
	}
}
