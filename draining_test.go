package lockkeeper_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// drainingEngine is far away and takes no new claims.
type drainingEngine struct {
	lockkeeper.Engine
	asked atomic.Int32
}

func (e *drainingEngine) Guarantees() lockkeeper.Guarantees {
	g := e.Engine.Guarantees()
	g.Prompt, g.Reach = false, lockkeeper.OnNetwork
	return g
}

func (e *drainingEngine) Claim(
	context.Context, lockkeeper.Key, lockkeeper.Want,
) (lockkeeper.Status, error) {
	e.asked.Add(1)
	return lockkeeper.Status{}, &lockkeeper.Error{
		Err: lockkeeper.ErrUnavailable, Reason: lockkeeper.Draining, Detail: "maintenance",
	}
}

// A claim that does not wait for a lock does not wait for the end of a drain either. The client
// tries once more, because another server of the same engine may answer.
func TestTryAtDrainingEngineFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &drainingEngine{Engine: memlock.New()}
		c := lockkeeper.New(e)
		defer c.Close()
		began := time.Now()
		_, err := c.TryLock(t.Context(), "db")
		var told *lockkeeper.Error
		if !errors.As(err, &told) || told.Reason != lockkeeper.Draining || told.Detail != "maintenance" {
			t.Errorf("got %v, want that it drains, and why", err)
		}
		if took := time.Since(began); took > time.Second || e.asked.Load() != 2 {
			t.Errorf("asked %d times in %s", e.asked.Load(), took)
		}
		e.asked.Store(0)
		_, err = c.Acquire(t.Context(), lockkeeper.Exclusive("db"), lockkeeper.WithWait(20*time.Second))
		if !errors.Is(err, lockkeeper.Draining) || e.asked.Load() < 3 || time.Since(began) < 10*time.Second {
			t.Errorf("one that waits asked %d times in %s: %v", e.asked.Load(), time.Since(began), err)
		}
	})
}
