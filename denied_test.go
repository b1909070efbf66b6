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

// closing is an engine that lets a client in no more once it is closed to it.
type closing struct {
	deaf
	closed *atomic.Bool
}

func (e closing) denial() error {
	if !e.closed.Load() {
		return nil
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrDenied, Detail: "the token is not known here"}
}

func (e closing) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	if err := e.denial(); err != nil {
		return lockkeeper.Lease{}, err
	}
	return e.deaf.Attach(ctx, s, notify)
}

func (e closing) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	if err := e.denial(); err != nil {
		return lockkeeper.Lease{}, err
	}
	return e.deaf.Renew(ctx, k)
}

func (e closing) End(ctx context.Context, k lockkeeper.Key, end lockkeeper.Ending) error {
	if err := e.denial(); err != nil {
		return err
	}
	return e.Engine.End(ctx, k, end)
}

// Who is let in no more is told so while it waits, at the next renewal, and not that
// the engine could not be reached. What it holds it has until its deadline.
func TestWaitOfWhoIsDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memlock.New()
		defer mem.Close()
		start := time.Now()
		clock := lockkeeper.BootClock(func() time.Duration { return time.Since(start) })
		e := closing{deaf{mem, new(atomic.Bool)}, new(atomic.Bool)}
		holder := lockkeeper.New(e, clock)
		defer holder.Close()
		hold, err := holder.Lock(t.Context(), "db")
		if err != nil {
			t.Fatal(err)
		}
		waiter := lockkeeper.New(e, clock)
		defer waiter.Close()
		told := make(chan error, 1)
		go func() {
			_, err := waiter.Lock(t.Context(), "db")
			told <- err
		}()
		synctest.Wait()
		e.closed.Store(true)
		began := time.Now()
		err = <-told
		if !errors.Is(err, lockkeeper.ErrDenied) || errors.Is(err, lockkeeper.ErrUnavailable) ||
			time.Since(began) > lockkeeper.DefaultTTL/3 {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if hold.Err() != nil {
			t.Errorf("the hold is lost before its deadline: %v", hold.Err())
		}
		<-hold.Done()
		if took := time.Since(began); took > lockkeeper.DefaultTTL || !errors.Is(hold.Err(), lockkeeper.ErrLost) {
			t.Errorf("after %s: %v", took, hold.Err())
		}
	})
}
