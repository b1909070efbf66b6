package keeper_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/lockkeeper/lockkeeper"
)

// TestUnreadWatchersTakeLittleMemory: what a watcher does not read costs a reference, not a status.
func TestUnreadWatchersTakeLittleMemory(t *testing.T) {
	const watchers, changed, mostBytes = 128, 4000, 160
	synctest.Test(t, func(t *testing.T) {
		k, attach := open(t)
		ann := attach("ann", 0, nil)
		claim(t, k, ann, want(1, "db"), lockkeeper.Held)
		read := make(chan struct{})
		for range watchers {
			go func() {
				for range k.List(t.Context(), lockkeeper.Query{Session: "ann", Follow: true}) {
					<-read
					return
				}
			}()
		}
		synctest.Wait()
		before := heap()
		for id := range uint64(changed) {
			claim(t, k, ann, want(id+2, lockkeeper.Path(fmt.Sprint("x/", id))), lockkeeper.Held)
		}
		statuses := 2000 * changed // the claims themselves, and a status of each
		if grown := heap() - before; grown > watchers*changed*mostBytes+statuses {
			t.Errorf("%d watchers that read nothing of %d claims take %d MB", watchers, changed, grown>>20)
		}
		close(read)
	})
}

// heap is how many bytes are in use.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
