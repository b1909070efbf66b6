package lockkeeper_test

import (
	"context"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// wire connects a client to an engine. Hooks of the test may delay or lose calls and answers.
type wire struct {
	lockkeeper.Engine
	mu sync.Mutex
	// err: not delivered now; deliver may be called later
	before    func(ctx context.Context, call string, deliver func()) error
	after     func(ctx context.Context, call string) error
	loseHints bool
}

func (w *wire) hooks() (func(context.Context, string, func()) error, func(context.Context, string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.before, w.after
}
func (w *wire) set(f func()) { w.mu.Lock(); defer w.mu.Unlock(); f() }

// do makes a call by apply, unless a hook prevents it. deliver makes the same call later, when
// nobody receives the answer.
func (w *wire) do(ctx context.Context, call string, deliver func(), apply func() error) error {
	b, a := w.hooks()
	if b != nil {
		if err := b(ctx, call, deliver); err != nil {
			return err
		}
	}
	err := apply()
	if a != nil && err == nil {
		err = a(ctx, call)
	}
	return err
}
func (w *wire) Attach(ctx context.Context, s lockkeeper.Session, n func([]lockkeeper.Status)) (l lockkeeper.Lease,
	err error) {
	told := func(sts []lockkeeper.Status) {
		w.mu.Lock()
		lost := w.loseHints
		w.mu.Unlock()
		if !lost {
			n(sts)
		}
	}
	err = w.do(ctx, "attach", func() { w.Engine.Attach(background, s, told) }, func() error {
		var e error
		l, e = w.Engine.Attach(background, s, told)
		return e
	})
	return l, err
}
func (w *wire) Renew(ctx context.Context, k lockkeeper.Key) (l lockkeeper.Lease, err error) {
	err = w.do(ctx, "renew", func() { w.Engine.Renew(background, k) }, func() error {
		var e error
		l, e = w.Engine.Renew(background, k)
		return e
	})
	return l, err
}
func (w *wire) Claim(ctx context.Context, k lockkeeper.Key, x lockkeeper.Want) (s lockkeeper.Status, err error) {
	call := "claim " + string(x.Targets[0].Path)
	if x.Revision > 0 {
		call = "amend " + x.Targets[0].Mode.String()
	}
	err = w.do(ctx, call, func() { w.Engine.Claim(background, k, x) }, func() error {
		var e error
		s, e = w.Engine.Claim(background, k, x)
		return e
	})
	return s, err
}
func (w *wire) End(ctx context.Context, k lockkeeper.Key, x lockkeeper.Ending) error {
	return w.do(ctx, "end", func() { w.Engine.End(background, k, x) }, func() error {
		return w.Engine.End(background, k, x)
	})
}
func (w *wire) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return w.Engine.List(ctx, q)
}
func (w *wire) Close() error { return nil }

// netted runs a test in a bubble, with clients that reach one engine over a wire each.
func netted(t *testing.T, test func(t *testing.T, k *keeper.Keeper, open func(id string) (*lockkeeper.Client, *wire))) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		clock := func() time.Duration { return time.Since(start) }
		k := keeper.New(lockkeeper.Guarantees{
			Name:     "net",
			Features: lockkeeper.TableFeatures,
			Reach:    lockkeeper.OnNetwork,
		}, clock)
		var cs []*lockkeeper.Client
		var ws []*wire
		test(t, k, func(id string) (*lockkeeper.Client, *wire) {
			w := &wire{Engine: k}
			c := lockkeeper.New(w, lockkeeper.BootClock(clock), lockkeeper.SessionID(id))
			cs, ws = append(cs, c), append(ws, w)
			return c, w
		})
		for _, w := range ws {
			w.set(func() { w.before, w.after = nil, nil })
		}
		for _, c := range cs {
			c.Close()
		}
		k.Close()
	})
}
