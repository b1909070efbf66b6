package soak

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// guests come and go beside the clients whose history is judged: sessions that are left, and some
// that nobody leaves, waits that time out, steals, lists and watchers. Each checks what it gets.
type guests struct {
	of         *driver
	features   lockkeeper.Features
	one, two   *lockkeeper.Client // for the whole soak
	operations atomic.Int64
	changes    atomic.Int64 // seen by the watcher
	away       atomic.Int64 // calls that the engine did not answer
	number     int          // of guests so far

	mu    sync.Mutex
	wrong []string

	life, running context.Context
	end, rest     context.CancelFunc
	working       sync.WaitGroup
	watching      sync.WaitGroup
}

// bound is for everything that one guest does.
const bound = 30 * time.Second

func newGuests(r *driver) *guests {
	g := &guests{of: r, features: r.engine.Guarantees().Features, one: r.client(r.engine), two: r.client(r.engine)}
	g.life, g.end = context.WithCancel(context.Background())
	g.watching.Go(g.watch)
	return g
}

func (r *driver) client(e lockkeeper.Engine) *lockkeeper.Client {
	return lockkeeper.New(e, lockkeeper.SessionTTL(ttl), lockkeeper.SharedEngine())
}

func (g *guests) resume() {
	g.running, g.rest = context.WithCancel(g.life)
	g.working.Go(func() {
		next := time.NewTicker(2 * g.of.Interval)
		defer next.Stop()
		for {
			select {
			case <-g.running.Done():
				return
			case <-next.C:
				g.next()
			}
		}
	})
}

func (g *guests) pause() {
	g.rest()
	g.working.Wait()
}

func (g *guests) close() {
	g.end()
	g.watching.Wait()
	_ = g.one.Close()
	_ = g.two.Close()
}

func (g *guests) faults() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	wrong := g.wrong
	g.wrong = nil
	return wrong
}

func (g *guests) String() string {
	return fmt.Sprintf("%d guests, %d changes watched, %d calls without an answer", g.operations.Load(), g.changes.Load(),
		g.away.Load())
}

// check records what is wrong with a guest.
func (g *guests) check(who string, err error) {
	switch {
	case err == nil:
	case errors.Is(err, lockkeeper.ErrUnavailable):
		g.away.Add(1)
	default:
		g.mu.Lock()
		g.wrong = append(g.wrong, fmt.Sprintf("%s: %v", who, err))
		g.mu.Unlock()
	}
}

// next is the next guest.
func (g *guests) next() {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	all := []struct {
		who   string
		needs lockkeeper.Features
		do    func(context.Context) error
	}{
		{"visitor", 0, g.visit},
		{"timeout", 0, g.timeOut},
		{"thief", lockkeeper.FeatureSteal | lockkeeper.FeaturePriority, g.steal},
		{"vanished session", 0, g.vanish},
		{"list", 0, g.list},
	}
	g.number++
	guest := all[g.number%len(all)]
	if guest.needs&^g.features == 0 {
		g.check(fmt.Sprint(guest.who, " ", g.number), guest.do(ctx))
		g.operations.Add(1)
	}
}

// visit is a session that takes a lock and leaves. Some open the engine for themselves.
func (g *guests) visit(ctx context.Context) (err error) {
	e := g.of.engine
	if g.of.Reopen && g.number%4 == 0 {
		if e, err = lockkeeper.Open(ctx, g.of.URL); err != nil {
			return err
		}
		defer func() { err = joined(err, e.Close()) }()
	}
	c := g.of.client(e)
	h, err := c.Lock(ctx, fmt.Sprint("visit-", g.number%4))
	if err == nil {
		err = h.Release(ctx)
	}
	return joined(err, c.Close())
}

// timeOut waits for a lock that is not released in time.
func (g *guests) timeOut(ctx context.Context) error {
	held, err := g.one.Lock(ctx, "busy")
	if err != nil {
		return err
	}
	got, err := g.two.Lock(ctx, "busy", lockkeeper.WithWait(20*time.Millisecond))
	switch {
	case err == nil && held.Err() == nil:
		err = joined(errors.New("two hold busy"), got.Release(ctx))
	case err == nil:
		err = got.Release(ctx) // the first one was lost meanwhile
	case errors.Is(err, lockkeeper.ErrNotAcquired):
		err = nil
	}
	return joined(err, lossIsFine(held.Release(ctx)))
}

// steal takes a lock from its holder.
func (g *guests) steal(ctx context.Context) error {
	held, err := g.one.Lock(ctx, "steal")
	if err != nil {
		return err
	}
	got, err := g.two.Lock(ctx, "steal", lockkeeper.WithPriority(1), lockkeeper.WithStealAfter(10*time.Millisecond))
	if err != nil {
		return joined(err, lossIsFine(held.Release(ctx)))
	}
	if held.Err() == nil && !got.Unconfirmed() {
		err = fmt.Errorf("steal is granted with fence %d, and the holder with fence %d does not know of its loss",
			got.Fence(), held.Fence())
		return joined(err, got.Release(ctx))
	}
	return lossIsFine(got.Release(ctx))
}

func lossIsFine(err error) error {
	if errors.Is(err, lockkeeper.ErrLost) {
		return nil
	}
	return err
}

// vanish is a session that nobody renews or leaves: its TTL ends it.
func (g *guests) vanish(ctx context.Context) error {
	s := lockkeeper.Session{ID: fmt.Sprintf("soak-%d-%d", g.of.Seed, g.number), TTL: lockkeeper.MinTTL}
	began := time.Now()
	lease, err := g.of.engine.Attach(ctx, s, func([]lockkeeper.Status) {})
	if err != nil {
		return err
	}
	target := lockkeeper.Target{
		Path: lockkeeper.Path(fmt.Sprint("vanish-", g.number%8)),
		Mode: lockkeeper.ModeExclusive,
	}
	want := lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{target}, Wait: lockkeeper.Forever}
	_, err = g.of.engine.Claim(ctx, lease.Key, want)
	if errors.Is(err, lockkeeper.ErrSession) && time.Since(began) >= s.TTL {
		return nil // the machine is so busy that the session has ended before
	}
	return err
}

func (g *guests) list(ctx context.Context) error {
	for _, err := range g.of.engine.List(ctx, lockkeeper.Query{}) {
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	for _, err := range g.of.engine.List(ctx, lockkeeper.Query{Follow: true}) {
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// watch follows all changes for the whole soak.
func (g *guests) watch() {
	for g.life.Err() == nil {
		for _, err := range g.of.engine.List(g.life, lockkeeper.Query{Follow: true, Brief: true}) {
			if err != nil && g.life.Err() == nil {
				g.check("watcher", err)
				break
			}
			g.changes.Add(1)
		}
		select {
		case <-g.life.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func joined(errs ...error) error { return errors.Join(errs...) }
