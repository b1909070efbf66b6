package transactions_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/disklock"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	_ "github.com/lockkeeper/lockkeeper/engine/redlock"
	"github.com/lockkeeper/lockkeeper/engine/sqlitelock"
	. "github.com/lockkeeper/lockkeeper/examples/transactions"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// engines make a new state, and a function that opens handles on it.
var engines = map[string]func(*testing.T) func(*testing.T) lockkeeper.Engine{
	"mem": func(t *testing.T) func(*testing.T) lockkeeper.Engine { return shared(t, memlock.New()) },
	"disk": func(t *testing.T) func(*testing.T) lockkeeper.Engine {
		return shared(t, must(t)(disklock.Open(t.Context(), t.TempDir())))
	},
	"sqlite": func(t *testing.T) func(*testing.T) lockkeeper.Engine {
		file := filepath.Join(t.TempDir(), "locks.db")
		return func(t *testing.T) lockkeeper.Engine { return must(t)(sqlitelock.Open(t.Context(), file)) }
	},
	"redis": func(t *testing.T) func(*testing.T) lockkeeper.Engine {
		url := fmt.Sprintf("redis://%s,%s,%s", testdb.Redis(t).Addr(), testdb.Redis(t).Addr(), testdb.Redis(t).Addr())
		return func(t *testing.T) lockkeeper.Engine { return must(t)(lockkeeper.Open(t.Context(), url)) }
	},
}

func must(t *testing.T) func(lockkeeper.Engine, error) lockkeeper.Engine {
	return func(e lockkeeper.Engine, err error) lockkeeper.Engine {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
}

// handle is one of several handles on one engine: its Close keeps the engine open.
type handle struct{ lockkeeper.Engine }

func (handle) Close() error { return nil }

// shared returns a function that opens handles on e, which is closed after the test.
func shared(t *testing.T, e lockkeeper.Engine) func(*testing.T) lockkeeper.Engine {
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return func(*testing.T) lockkeeper.Engine { return handle{e} }
}

// world is the clients of one engine and the steps that their transactions have done.
type world struct {
	*testing.T
	open func(*testing.T) lockkeeper.Engine

	mu      sync.Mutex
	done    []int // the results of steps that were done under the lock of db, in order
	working int   // steps under the lock of db that run now
}

// everywhere runs the test on each engine, in real time.
func everywhere(t *testing.T, test func(*world)) {
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&world{T: t, open: engine(t)})
		})
	}
}

// inMemory runs the test on an engine in memory, in fake time.
func inMemory(t *testing.T, test func(*world)) {
	synctest.Test(t, func(t *testing.T) { test(&world{T: t, open: shared(t, memlock.New())}) })
}

func (w *world) client(name string) *lockkeeper.Client {
	c := lockkeeper.New(w.open(w.T), lockkeeper.SessionLabel(lockkeeper.Label{As: name}))
	w.Cleanup(func() {
		if err := c.Close(); err != nil {
			w.Error(err)
		}
	})
	return c
}

// step records n as done, unless the step loses its lock. during runs before that.
func (w *world) step(n int, during func(context.Context, *lockkeeper.Hold)) Step[int] {
	return func(ctx context.Context, hold *lockkeeper.Hold, _ int) (int, error) {
		w.mu.Lock()
		if w.working++; w.working > 1 {
			w.Errorf("step %d runs beside another one", n)
		}
		w.mu.Unlock()
		if during != nil {
			during(ctx, hold)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.working--
		if hold.Err() == nil {
			w.done = append(w.done, n)
		}
		return n, ctx.Err()
	}
}

// steps are steps of 5 ms each.
func (w *world) steps(results ...int) (steps []Step[int]) {
	for _, n := range results {
		steps = append(steps, w.step(n, func(ctx context.Context, _ *lockkeeper.Hold) {
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}))
	}
	return steps
}

// did fails the test unless these steps were done, in this order.
func (w *world) did(want ...int) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.done, want) {
		w.Errorf("the steps done are %v, want %v", w.done, want)
	}
}

// outcome is what Run returns.
type outcome struct {
	value int
	err   error
}

func (o outcome) String() string { return fmt.Sprintf("%d, %v", o.value, o.err) }

// start runs a transaction in the background.
func start(ctx context.Context, c *lockkeeper.Client, tx Transaction[int]) <-chan outcome {
	result := make(chan outcome, 1)
	go func() {
		value, err := Run(ctx, c, tx)
		result <- outcome{value, err}
	}()
	return result
}

// free fails the test unless nobody has db.
func (w *world) free(c *lockkeeper.Client) {
	w.Helper()
	h, err := c.TryLock(w.Context(), "db")
	if err != nil {
		w.Fatal(err)
	}
	h.Close()
}

func db(priority int, more ...lockkeeper.Request) []lockkeeper.Request {
	return append([]lockkeeper.Request{lockkeeper.Exclusive("db"), lockkeeper.WithPriority(priority)}, more...)
}
