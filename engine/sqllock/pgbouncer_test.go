package sqllock

import (
	"slices"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/enginetest"
	"github.com/lockkeeper/lockkeeper/internal/stress"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// newBouncer starts a PgBouncer that pools transactions on three connections, fewer
// than the engines before it have goroutines.
func newBouncer(t *testing.T) *testdb.Server {
	return testdb.PgBouncer(t, testdb.SharedPostgres(t), testdb.Set("default_pool_size", "3"))
}

// All that holds of an engine holds behind PgBouncer. Each test has a schema of its own, as
// PgBouncer 1.18 does not outlive that a database is dropped which it has connections to.
func TestConformanceBehindPgBouncer(t *testing.T) {
	testmode.NeedLong(t, "it is the suite once more; TestCrowdBehindPgBouncer uses one in little time")
	url := testdb.PgBouncer(t, testdb.SharedPostgres(t), testdb.Set("default_pool_size", "16")).Database(t)
	enginetest.Run(t, harness(schemasOf(url)))
}

// Whatever clients do at random holds behind PgBouncer too, where each transaction may
// meet another connection.
func TestStressBehindPgBouncer(t *testing.T) {
	testmode.NeedLong(t, "TestCrowdBehindPgBouncer is a load of less time")
	t.Parallel()
	b := newBouncer(t)
	enginetest.Stress(t, harness(func(t *testing.T) string { return b.Database(t) }))
}

// Many processes share the few connections of a PgBouncer, and in the end everything is free.
func TestCrowdBehindPgBouncer(t *testing.T) {
	t.Parallel()
	url := newBouncer(t).Database(t)
	c := gather(t, testmode.Seed(t), 0, url, url, url, url)
	granted(t, c, 150)
	c.Pause()
	e := openEngine(t, url)
	if err := stress.CheckFree(quiet{e}, longest); err != nil {
		t.Error(err)
	}
	verdict(t, c)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	noLatches(t, e)
}

// Behind PgBouncer no notices arrive. The engine finds that out, and polls often while a claim
// waits, so that a lock changes hands at once nevertheless.
func TestHandOverBehindPgBouncer(t *testing.T) {
	t.Parallel()
	url := newBouncer(t).Database(t)
	a, b := join(t, openEngine(t, url), "a", cutTTL), join(t, openEngine(t, url), "b", cutTTL)
	const times = 9
	var took [times]time.Duration
	for i := range took {
		id := uint64(i + 1)
		a.claim(exclusive(id, 0, "a"), lockkeeper.Held)
		b.claim(exclusive(id, lockkeeper.Forever, "a"), lockkeeper.Waiting)
		if i == 0 {
			<-time.After(2 * echoBound) // by then it knows that it is deaf
		}
		began := time.Now()
		a.release(id)
		b.await(id, lockkeeper.Held)
		took[i] = time.Since(began)
		b.release(id)
	}
	slices.Sort(took[:])
	// A waiter that relied on notices would poll after up to pollListening, half of it on average.
	if took[times/2] > pollListening/4 {
		t.Errorf("a lock changed hands after %v, which is as if somebody waited to be told", took)
	}
}
