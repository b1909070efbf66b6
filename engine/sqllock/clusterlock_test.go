package sqllock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// The operations of users of clusterlock, by the portable client, on both databases. Most of its
// cases and flaws are in the suite, as T4 and F4.

// host opens the locks as another host does.
func host(t *testing.T, url string, options ...lockkeeper.ClientOption) *lockkeeper.Client {
	t.Helper()
	e, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	c := lockkeeper.New(e, options...)
	t.Cleanup(func() { c.Close() })
	return c
}

// At most three are inside at a time, over all hosts and goroutines, and all get in.
func TestThreeAtATime(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		db := opened(t, url)
		db.mustExec(t, `CREATE TABLE asked (queries INT NOT NULL, most INT NOT NULL, alltogether INT NOT NULL)`,
			`INSERT INTO asked VALUES (0, 0, 0)`)
		var working sync.WaitGroup
		for range 4 {
			c := host(t, url)
			for range 4 {
				working.Go(func() {
					for range 2 {
						hold, err := c.Acquire(t.Context(), lockkeeper.Permits("router1/snmp", 1, 3))
						if err != nil {
							t.Error(err)
							return
						}
						for _, statement := range []string{
							`UPDATE asked SET queries = queries + 1, alltogether = alltogether + 1`,
							`UPDATE asked SET most = queries WHERE queries > most`,
							`UPDATE asked SET queries = queries - 1`,
						} {
							if _, err := db.pool.Exec(statement); err != nil {
								t.Error(err)
							}
						}
						if err := hold.Release(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		working.Wait()
		var now, most, all int
		if err := db.pool.QueryRow(`SELECT queries, most, alltogether FROM asked`).Scan(&now, &most, &all); err != nil {
			t.Fatal(err)
		}
		if now != 0 || most > 3 || most < 2 || all != 32 {
			t.Errorf("%d of 32 asked, at most %d at once, and %d go on; want at most 3 at once", all, most, now)
		}
	})
}

// deadTTL is the TTL of sessions that expire while others already wait for what they hold: they must do so
// before, also on a busy machine.
const deadTTL = 3 * lockkeeper.MinTTL

// The release of a permit that has expired fails, and frees no other session's permit.
func TestLateReleaseFreesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		permit := func(id uint64, wait time.Duration) lockkeeper.Want {
			return lockkeeper.Want{
				ID:      id,
				Wait:    wait,
				Targets: []lockkeeper.Target{{Path: "router1/snmp", Mode: lockkeeper.ModePermits, Units: 1, Limit: 3}},
			}
		}
		dead, live := join(t, openEngine(t, url), "dead", deadTTL), join(t, openEngine(t, url), "live", time.Minute)
		dead.claim(permit(1, 0), lockkeeper.Held)
		live.claim(permit(1, 0), lockkeeper.Held)
		live.claim(permit(2, 0), lockkeeper.Held)
		live.claim(permit(3, lockkeeper.Forever), lockkeeper.Waiting)
		live.await(3, lockkeeper.Held) // when nobody has renewed the dead one
		err := dead.End(bounded(t), dead.key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1})
		if !errors.Is(err, lockkeeper.ErrSession) {
			t.Errorf("the late release: %v", err)
		}
		live.claim(permit(4, 0), lockkeeper.Ended)
		live.release(2)
		if st := live.claim(permit(5, 0), lockkeeper.Held); st.Grants[0].InUse != 3 {
			t.Errorf("%d are in use; want 3", st.Grants[0].InUse)
		}
	})
}

// The holds of a program that is gone are free for the next claim after its TTL, even if no process
// was there to clean up.
func TestNobodyCleansUp(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		e, err := Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		join(t, e, "dead", lockkeeper.MinTTL).claim(exclusive(1, 0, "router1/config"), lockkeeper.Held)
		gone := time.After(lockkeeper.MinTTL + 50*time.Millisecond)
		if err := e.Close(); err != nil { // without a word about its session
			t.Fatal(err)
		}
		<-gone
		join(t, openEngine(t, url), "next", time.Minute).claim(exclusive(1, 0, "router1/config"), lockkeeper.Held)
	})
}

// A bounded wait ends in time, with the error for a taken lock, and blocks no other claim
// afterwards.
func TestBoundedWait(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		one, two := host(t, url), host(t, url)
		hold, err := one.Lock(t.Context(), "router1/config")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = two.Lock(t.Context(), "router1/config", lockkeeper.WithWait(500*time.Millisecond))
		if took := time.Since(began); !errors.Is(err, lockkeeper.ErrNotAcquired) || took < 500*time.Millisecond {
			t.Errorf("after %s: %v", took, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := two.Lock(ctx, "router1/config"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("when its context had ended: %v", err)
		}
		if err := hold.Release(t.Context()); err != nil {
			t.Error(err)
		}
		// at once, or when what came too late was given back
		third, err := one.Lock(t.Context(), "router1/config", lockkeeper.WithWait(longest))
		if err != nil {
			t.Fatalf("who gave up is still in the way: %v", err)
		}
		if err := third.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The tables of MariaDB have transactions, whatever the server makes by default.
func TestTablesHaveTransactions(t *testing.T) {
	url := testdb.SharedMariaDB(t).Database(t)
	db := opened(t, url)
	if err := Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	tables, others := 0, 0
	err := db.pool.QueryRow(`SELECT count(*), coalesce(sum(engine <> 'InnoDB'), 0) FROM information_schema.tables
		WHERE table_schema = database() AND table_type = 'BASE TABLE'
		AND table_name LIKE 'lockkeeper\_%'`).Scan(&tables, &others)
	if err != nil || tables < 8 || others != 0 {
		t.Errorf("%d tables, of which %d have no transactions; %v", tables, others, err)
	}
}
