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

// deaf is an engine whose answers and hints get lost: what it is asked arrives.
type deaf struct {
	lockkeeper.Engine
	lost *atomic.Bool
}

func (e deaf) Guarantees() lockkeeper.Guarantees {
	g := e.Engine.Guarantees()
	g.Reach, g.Prompt, g.NoExpiry = lockkeeper.OnNetwork, false, false
	return g
}

func (e deaf) answer(err error) error {
	if e.lost.Load() {
		return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: errors.New("the answer is lost")}
	}
	return err
}

func (e deaf) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	l, err := e.Engine.Attach(ctx, s, func(statuses []lockkeeper.Status) {
		if !e.lost.Load() {
			notify(statuses)
		}
	})
	return l, e.answer(err)
}

func (e deaf) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	l, err := e.Engine.Renew(ctx, k)
	return l, e.answer(err)
}

func (e deaf) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	s, err := e.Engine.Claim(ctx, k, w)
	return s, e.answer(err)
}

func (e deaf) Close() error { return nil }

// A holder that was told of the end of its hold by an answer that got lost does not
// know of it. Who takes the lock then must be told that the former holder might not
// know (R12).
func TestStolenFromWhoHeardNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memlock.New()
		defer mem.Close()
		start := time.Now()
		clock := lockkeeper.BootClock(func() time.Duration { return time.Since(start) })
		lost := new(atomic.Bool)
		victim := lockkeeper.New(deaf{mem, lost}, lockkeeper.SessionTTL(3*time.Second), clock)
		defer victim.Close()
		held, err := victim.Lock(t.Context(), "db")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		lost.Store(true) // renewals arrive, their answers don't
		thief := lockkeeper.New(deaf{mem, new(atomic.Bool)}, lockkeeper.SessionTTL(30*time.Second), clock)
		defer thief.Close()
		got, err := thief.Lock(t.Context(), "db", lockkeeper.WithPriority(1),
			lockkeeper.WithStealAfter(1200*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if err := held.Err(); err == nil && !got.Unconfirmed() {
			t.Errorf("two hold it: the victim believes so for another %s, and the thief's grant is not marked as unconfirmed",
				held.Remaining())
		}
		lost.Store(false)
	})
}
