package disklock

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// A directory can be closed while a snapshot is on its way, and is as it was when it
// is opened again.
func TestCloseWithinSnapshot(t *testing.T) {
	dir := t.TempDir()
	var e *Engine
	within := make(chan struct{})
	var once sync.Once
	e = openHere(t, dir, options{careless: true, snapshotEvery: 300, committed: func(*row) {
		if e == nil || e.journal.snapshot == nil || e.journal.snapshot.written == 0 || e.journal.snapshot.done {
			return
		}
		once.Do(func() {
			close(within)
			<-e.journal.quit
		})
	}})
	a := attachTo(t, e, "ann")
	var asking sync.WaitGroup
	asking.Go(func() {
		for i := range 10_000 {
			if _, err := a.claim(fmt.Sprint("a/", i), patience); err != nil {
				if !errors.Is(err, lockkeeper.ErrUnavailable) {
					t.Error(err)
				}
				return
			}
		}
		t.Error("there was no snapshot")
	})
	<-within
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	asking.Wait()
	again := openHere(t, dir, options{careless: true})
	defer again.Close()
	if again.journal.header.claims < 300 {
		t.Errorf("%d claims are there again", again.journal.header.claims)
	}
}
