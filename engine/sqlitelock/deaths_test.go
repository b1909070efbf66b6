//go:build unix

package sqlitelock

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roles"
)

// However often a process waits for a hold of another process and gives up, one thread remains that
// waits for the other's death, and nothing of closed engines.
func TestWaitingLeavesOneThread(t *testing.T) {
	path := file(t)
	holder := roles.Start(t, "hold", path, "db")
	holder.Read("held")
	// waitOnce returns the engine, which nothing should refer to any more.
	waitOnce := func() weak.Pointer[Engine] {
		c, e, err := client(path)
		if err != nil {
			t.Fatal(err)
		}
		pending, err := c.Enqueue(bounded(t), lockkeeper.Exclusive("db"))
		if err != nil {
			t.Fatal(err)
		}
		if err := e.call(bounded(t), true, func(*transaction) {}); err != nil { // after a turn in which it waits
			t.Fatal(err)
		}
		watched := false
		for bound := bounded(t); !watched && bound.Err() == nil; runtime.Gosched() {
			watchedFiles.mu.Lock()
			for _, engines := range watchedFiles.files {
				watched = watched || engines[e] != ""
			}
			watchedFiles.mu.Unlock()
		}
		if !watched {
			t.Fatal("the holder is not watched")
		}
		if err := pending.Cancel(); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		return weak.Make(e)
	}
	waitOnce()
	before := runtime.NumGoroutine()
	var engines []weak.Pointer[Engine]
	for range 20 {
		engines = append(engines, waitOnce())
	}
	bound := bounded(t)
	for runtime.NumGoroutine() > before+5 && bound.Err() == nil {
		runtime.Gosched() // those that end
	}
	if n := runtime.NumGoroutine(); n > before+5 {
		t.Errorf("%d goroutines after 20 waits, %d after the first", n, before)
	}
	left := len(engines)
	for left > 0 && bound.Err() == nil {
		runtime.GC()
		left = 0
		for _, e := range engines {
			if e.Value() != nil {
				left++
			}
		}
	}
	if left > 0 {
		t.Errorf("%d closed engines are still referred to", left)
	}
}

// Files that are locked forever, as by daemons that have inherited them, may use
// up all threads that wait for deaths: another death is noticed all the same.
func TestKilledHolderBesideDaemons(t *testing.T) {
	path := file(t)
	c, e := testClient(t, path)
	daemons := newFolder(&database{path: filepath.Join(t.TempDir(), "locks.db"), file: e.db.file, me: e.db.me})
	full := func() bool {
		watchedFiles.mu.Lock()
		defer watchedFiles.mu.Unlock()
		return len(watchedFiles.files) >= mostWatchers
	}
	other := openReal(t, file(t))
	for i := 0; !full(); i++ {
		f, name, err := daemons.create()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		watchedFiles.watch(daemons, name, other, fmt.Sprint("daemon", i))
	}
	holder := roles.Start(t, "hold", path, "db")
	holder.Read("held")
	_, granted := waitFor(t, c, "db")
	holder.Kill()
	select {
	case hold := <-granted:
		hold.Close()
	case <-time.After(lockkeeper.DefaultTTL / 2):
		t.Fatal("not granted though the holder is dead")
	}
}

// Two engines of one process that wait for one file are both notified.
func TestDeathNotifiesAllWaiters(t *testing.T) {
	path := file(t)
	holder := roles.Start(t, "hold", path, "db")
	holder.Read("held")
	var all []<-chan *lockkeeper.Hold
	for range 2 {
		c, _ := testClient(t, path)
		pending, err := c.Enqueue(bounded(t), lockkeeper.Shared("db"))
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan *lockkeeper.Hold, 1)
		go func() {
			if hold, err := pending.Wait(context.Background()); err == nil {
				granted <- hold
			}
		}()
		all = append(all, granted)
	}
	holder.Kill()
	late := time.After(lockkeeper.DefaultTTL / 2)
	for _, granted := range all {
		select {
		case <-granted:
		case <-late:
			t.Fatal("not granted though the holder is dead")
		}
	}
}
