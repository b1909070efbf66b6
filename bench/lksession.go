package main

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// sessions numbers the sessions that were opened.
var sessions atomic.Int64

// lkSession is one session at an engine, with many lockers that claim in it.
type lkSession struct {
	engine  lockkeeper.Engine
	key     lockkeeper.Key
	waiting atomic.Pointer[[]*engineLocker] // by number
	done    atomic.Uint64                   // no claim below this id is begun any more
	left    context.CancelFunc
}

// by is the key, which states what is answered, as a Client's does (R16).
func (s *lkSession) by() lockkeeper.Key {
	k := s.key
	k.LowestOpen = s.done.Load()
	return k
}

// state looks below which id all claims are over.
func (s *lkSession) state() {
	least := uint64(math.MaxUint64)
	for _, l := range *s.waiting.Load() {
		least = min(least, l.ended.Load())
	}
	for {
		now := s.done.Load()
		if now >= least<<lockerBits || s.done.CompareAndSwap(now, least<<lockerBits) {
			return
		}
	}
}

// lockerBits is how many bits of a claim's id say whose it is. Those before count the
// claims of that locker, so that ids rise with time.
const lockerBits = 20

// statesEvery is after how many claims a locker looks what all have behind them.
const statesEvery = 64

// openSession attaches a session, and renews it until it is closed.
func openSession(ctx context.Context, e lockkeeper.Engine, id string) (*lkSession, error) {
	s := &lkSession{engine: e}
	s.waiting.Store(&[]*engineLocker{})
	lease, err := e.Attach(ctx, lockkeeper.Session{ID: id, TTL: lockkeeper.DefaultTTL}, s.notify)
	if err != nil {
		return nil, err
	}
	s.key = lease.Key
	life, left := context.WithCancel(context.Background())
	s.left = left
	go s.renew(life)
	return s, nil
}

// renew keeps the session alive. If it can't, those who claim in it are refused.
func (s *lkSession) renew(life context.Context) {
	again := time.NewTicker(lockkeeper.DefaultTTL / 3)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			_, _ = s.engine.Renew(life, s.by())
		case <-life.Done():
			return
		}
	}
}

// close leaves the session, so that its claims end now. The engine is still open.
func (s *lkSession) close() {
	s.left()
	for _, l := range *s.waiting.Load() {
		if l.frames != nil {
			l.frames.close()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopBound)
	defer cancel()
	// Without an answer the session ends by its TTL, and nobody uses its paths again.
	_ = s.engine.End(ctx, s.key, lockkeeper.Ending{Kind: lockkeeper.Leave})
}

// locker is another locker in the session. It is called before any of them is used.
func (s *lkSession) locker() *engineLocker {
	known := *s.waiting.Load()
	l := &engineLocker{session: s, number: uint64(len(known)), woken: make(chan struct{}, 1)}
	known = append(known, l)
	s.waiting.Store(&known)
	return l
}

// notify wakes those whose claims are held now. No statuses say that some were
// missed: then all look for themselves.
func (s *lkSession) notify(changed []lockkeeper.Status) {
	lockers := *s.waiting.Load()
	if len(changed) == 0 {
		for _, l := range lockers {
			l.unsure.Store(true)
			l.wake()
		}
	}
	for i := range changed {
		if changed[i].State != lockkeeper.Held {
			continue
		}
		l := lockers[changed[i].Ref.ID&(1<<lockerBits-1)]
		l.held.Store(changed[i].Ref.ID)
		l.wake()
	}
}

// engineLocker locks by the calls of an engine, as a Client would, with nothing else.
type engineLocker struct {
	session *lkSession
	number  uint64
	count   uint64
	ended   atomic.Uint64 // so many of its claims are over
	held    atomic.Uint64 // the claim of which a hint said that it is held
	unsure  atomic.Bool   // hints may have been missed
	woken   chan struct{}

	address string       // of the server, for batches
	frames  *frameLocker // opened by the first batch
}

func (l *engineLocker) wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// wantOf is the claim of the number for the path.
func wantOf(id uint64, path string) lockkeeper.Want {
	return lockkeeper.Want{
		ID:      id,
		Targets: []lockkeeper.Target{{Path: lockkeeper.Path(path), Mode: lockkeeper.ModeExclusive}},
		Wait:    lockkeeper.Forever,
	}
}

// next is the id of its next claim.
func (l *engineLocker) next() uint64 {
	l.count++
	return l.count<<lockerBits | l.number
}

// over notes that all its claims have ended.
func (l *engineLocker) over() {
	l.ended.Store(l.count)
	if l.count%statesEvery == 0 {
		l.session.state()
	}
}

func (l *engineLocker) Acquire(ctx context.Context, path string) error {
	w := wantOf(l.next(), path)
	for {
		status, err := l.session.engine.Claim(ctx, l.session.by(), w)
		switch {
		case err != nil:
			return err
		case status.State == lockkeeper.Held:
			return nil
		case status.State != lockkeeper.Waiting:
			return &lockkeeper.Error{Err: lockkeeper.ErrNotAcquired, Reason: status.Reason}
		}
		if known, err := l.await(ctx, w.ID); known || err != nil {
			return err
		}
	}
}

// await waits for the hint that the claim is held; it is not known if hints may
// have been missed.
func (l *engineLocker) await(ctx context.Context, id uint64) (known bool, err error) {
	for {
		if l.held.Load() == id {
			return true, nil
		}
		if l.unsure.Swap(false) {
			return false, nil
		}
		select {
		case <-l.woken:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

func (l *engineLocker) Release(ctx context.Context, _ string) error {
	id := l.count<<lockerBits | l.number
	err := l.session.engine.End(ctx, l.session.by(), lockkeeper.Ending{Kind: lockkeeper.Release, ID: id})
	l.over()
	return err
}
