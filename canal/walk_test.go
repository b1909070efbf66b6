package canal_test

import (
	"sync"
	"testing"

	"github.com/lockkeeper/lockkeeper/canal"
)

// TestWalkBesideReleases walks over a key that is acquired and released all the
// time: when it is told of, it is in use.
func TestWalkBesideReleases(t *testing.T) {
	m := canal.New[string]()
	stop := make(chan struct{})
	var wait sync.WaitGroup
	defer wait.Wait()
	defer close(stop)
	wait.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			slot, err := m.TryAcquire("db", 1)
			if err != nil {
				t.Error(err)
				return
			}
			if err := slot.Release(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 30_000 {
		for key, n := range m.All() {
			if n != 1 {
				t.Fatalf("%s has %d slots in use, says All", key, n)
			}
		}
	}
}
