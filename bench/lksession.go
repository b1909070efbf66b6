package main

import (
	"context"
	"sync"
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
	lockers []*engineLocker
	claims  claimIDs
	left    context.CancelFunc
}

// by returns the key, which states the lowest open id as a Client does (R16).
func (s *lkSession) by() lockkeeper.Key {
	k := s.key
	k.LowestOpen = s.claims.lowestOpen.Load()
	return k
}

// claimIDs assigns the ids of claims, one after the other as a Client does, and knows which claims
// are not answered yet:
//
//	lowestOpen = min(ids not answered, the next id)
//
// It is safe for concurrent use.
type claimIDs struct {
	lowestOpen atomic.Uint64 // 0 until the first claim is answered

	mu       sync.Mutex
	lowest   uint64                   // the id of answered[0]; 0: no id was assigned
	answered []bool                   // by id, from the lowest one that is not answered to the latest
	pending  map[uint64]*engineLocker // the lockers whose claims are not known to be held
}

// begin returns the id of the locker's next claim, which is open and pending.
func (c *claimIDs) begin(l *engineLocker) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lowest == 0 {
		c.lowest, c.pending = 1, make(map[uint64]*engineLocker)
	}
	c.answered = append(c.answered, false)
	id := c.lowest + uint64(len(c.answered)) - 1
	c.pending[id] = l
	return id
}

// close notes that the claim was answered, so that nobody begins it again.
func (c *claimIDs) close(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id < c.lowest {
		return // it is closed already
	}
	c.answered[id-c.lowest] = true
	for len(c.answered) > 0 && c.answered[0] {
		c.answered = c.answered[1:]
		c.lowest++
	}
	c.lowestOpen.Store(c.lowest)
}

// done notes that the claim is pending no more.
func (c *claimIDs) done(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// locker returns the locker whose claim is pending with this id; nil if there is none.
func (c *claimIDs) locker(id uint64) *engineLocker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[id]
}

// openSession attaches a session, and renews it until it is closed.
func openSession(ctx context.Context, e lockkeeper.Engine, id string) (*lkSession, error) {
	s := &lkSession{engine: e}
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
	for _, l := range s.lockers {
		if l.frames != nil {
			l.frames.close()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopBound)
	defer cancel()
	// Without an answer the session ends by its TTL, and nobody uses its paths again.
	_ = s.engine.End(ctx, s.key, lockkeeper.Ending{Kind: lockkeeper.Leave})
}

// locker returns another locker in the session. It is called before any of them is used.
func (s *lkSession) locker() *engineLocker {
	l := &engineLocker{session: s, woken: make(chan struct{}, 1)}
	s.lockers = append(s.lockers, l)
	return l
}

// notify wakes the lockers whose claims are held now. No statuses mean that some may have been
// missed: then all lockers ask for themselves.
func (s *lkSession) notify(changed []lockkeeper.Status) {
	if len(changed) == 0 {
		for _, l := range s.lockers {
			l.unsure.Store(true)
			l.wake()
		}
	}
	for i := range changed {
		if changed[i].State != lockkeeper.Held {
			continue
		}
		if l := s.claims.locker(changed[i].Ref.ID); l != nil {
			l.held.Store(changed[i].Ref.ID)
			l.wake()
		}
	}
}

// engineLocker locks by the calls of an engine, as a Client would, with nothing else.
type engineLocker struct {
	session *lkSession
	id      uint64        // of its latest claim
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

func (l *engineLocker) Acquire(ctx context.Context, path string) error {
	l.id = l.session.claims.begin(l)
	defer l.session.claims.done(l.id)
	w := wantOf(l.id, path)
	for {
		status, err := l.session.engine.Claim(ctx, l.session.by(), w)
		if err != nil {
			return err
		}
		l.session.claims.close(l.id)
		switch status.State {
		case lockkeeper.Held:
			return nil
		case lockkeeper.Waiting:
		default:
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
	return l.session.engine.End(ctx, l.session.by(), lockkeeper.Ending{Kind: lockkeeper.Release, ID: l.id})
}
