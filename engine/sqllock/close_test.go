package sqllock

import (
	"fmt"
	"sync"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// An engine that is closed in the middle of a transaction does not ask the server to cancel it:
// it is done, and a waiting caller gets an error.
func TestCloseInATransaction(t *testing.T) {
	overKinds(t, func(t *testing.T, k kind) {
		url := k.shared(t).Database(t)
		for n := 1; n <= 2; n++ { // the requests of a claim
			proxy := testdb.NewProxy(t, k.shared(t))
			e := openEngine(t, proxy.URL(databaseName(url)))
			m := join(t, e, fmt.Sprint("closed-", n), longest)
			var closing sync.WaitGroup
			proxy.Call(n, func() {
				closing.Go(func() { e.Close() })
				<-e.closing.Done()
			})
			st, err := m.Claim(bounded(t), m.key, exclusive(1, lockkeeper.Forever, "a"))
			if err != nil || st.State != lockkeeper.Held && st.State != lockkeeper.Waiting {
				t.Errorf("closed at request %d of a claim: %v, %v", n, st.State, err)
			}
			closing.Wait()
			if proxy.Struck() == "" {
				t.Fatalf("a claim has no request %d", n)
			}
		}
	})
}
