package sqllock

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// deadlocks is how many deadlocks the database has found.
func deadlocks(t *testing.T, db database) (n int) {
	t.Helper()
	query := "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
	if db.flavour == mysql {
		query = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_DEADLOCKS'"
	}
	rowsRead(t, db) // has Postgres count to the end
	if err := db.pool.QueryRow(query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Transactions of several processes with claims of many targets, in any order, don't wait for each
// other in a cycle. (The database would break a cycle: one of the transactions would fail.)
func TestTransactionsDontDeadlock(t *testing.T) {
	overMostKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		var options []testdb.Option
		if k.name == "Postgres" { // which looks for circles later than the engine waits for a latch
			options = append(options, testdb.Set("deadlock_timeout", "5ms"))
		}
		url := k.own(t, options...).Database(t)
		seed := testmode.Seed(t)
		var running sync.WaitGroup
		var grants atomic.Int64
		for i := range 3 {
			e := openEngine(t, url)
			for n := range 4 {
				m := join(t, e, fmt.Sprintf("s%d.%d", i, n), cutTTL)
				random := rand.New(rand.NewPCG(seed, uint64(10*i+n)))
				running.Go(func() {
					for id := uint64(1); id <= 12; id++ {
						w := lockkeeper.Want{ID: id, Wait: lockkeeper.Forever, Targets: targets(random)}
						st, err := m.Claim(bounded(t), m.key, w)
						if err != nil {
							t.Errorf("%v: %v", w.Targets, err)
							return
						}
						if st.State == lockkeeper.Waiting {
							m.await(id, lockkeeper.Held)
						}
						grants.Add(1)
						m.release(id)
					}
				})
			}
		}
		running.Wait()
		n := deadlocks(t, opened(t, url))
		t.Logf("%d grants, %d deadlocks of the database", grants.Load(), n)
		if n > int(grants.Load())/100 {
			t.Errorf("the database found %d deadlocks in %d grants, want next to none", n, grants.Load())
		}
	})
}

// targets makes up some that often meet those of others.
func targets(random *rand.Rand) (all []lockkeeper.Target) {
	paths := []lockkeeper.Path{"a/1", "a/2", "a/3/x", "b/1", "b/2", "c", "d/1", "d/2/y", "e"}
	for _, i := range random.Perm(len(paths))[:1+random.IntN(5)] {
		t := lockkeeper.Target{Path: paths[i], Mode: lockkeeper.ModeExclusive}
		switch random.IntN(4) {
		case 0:
			t.Mode = lockkeeper.ModeShared
		case 1:
			t.Mode, t.Units, t.Limit = lockkeeper.ModePermits, 1, 2
		}
		all = append(all, t)
	}
	return all
}
