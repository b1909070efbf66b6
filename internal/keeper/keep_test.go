package keeper

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/lockkeeper/lockkeeper"
)

// TestCallerBoundsWhatIsKeptForIt: all lists of a caller keep as much as it allows, the watcher
// that would exceed that ends, a reader goes on, and in the end nothing is kept.
func TestCallerBoundsWhatIsKeptForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, ann := newTest(t)
		ask(t, k, ann, 1, "x")
		var mu sync.Mutex
		kept, most := 0, 0
		keep := func(n int) bool {
			mu.Lock()
			defer mu.Unlock()
			if n > 0 && kept+n > 10 {
				return false
			}
			kept += n
			most = max(most, kept)
			return true
		}
		read, errs := make(chan struct{}), make(chan error, 3)
		for range cap(errs) {
			go func() {
				for _, err := range k.List(t.Context(), lockkeeper.Query{Session: "ann", Follow: true, Keep: keep}) {
					if err != nil {
						errs <- err
						return
					}
					<-read
				}
			}()
			synctest.Wait()
		}
		for id := range uint64(100) {
			ask(t, k, ann, id+2, lockkeeper.Path(fmt.Sprint("y/", id)))
		}
		synctest.Wait()
		if most != 10 || k.watchers.Len() == cap(errs) {
			t.Errorf("%d statuses were kept, for %d watchers in the end", most, k.watchers.Len())
		}
		close(read)
		for range cap(errs) {
			if err := <-errs; !errors.Is(err, lockkeeper.ErrUnavailable) {
				t.Errorf("it ends with %v, want ErrUnavailable", err)
			}
		}
		synctest.Wait()
		if kept != 0 {
			t.Errorf("%d statuses are still kept", kept)
		}
		for _, err := range k.List(t.Context(), lockkeeper.Query{Keep: keep}) {
			if !errors.Is(err, lockkeeper.Quota) {
				t.Errorf("a list of 101 claims: %v", err)
			}
		}
	})
}
