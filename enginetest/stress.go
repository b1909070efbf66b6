package enginetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
)

// Stress runs clients with random requests over everything that the engine claims: modes, trees,
// many targets, priorities, steals, soft writers, tries, cancelled waits, conversions and
// revocations. Some links lose or duplicate messages, and some links are cut for shorter and longer
// than a TTL. Then all links work again, and every path must become free within the longest TTL.
// Package history judges the recorded history.
//
// The flag -seed fixes the requests and faults, and Stress logs how to replay them. It does not fix
// the order in which goroutines run.
func Stress(t *testing.T, h Harness) {
	seed := testmode.Seed(t)
	ops := testmode.Pick(15, 300) // requests of each worker
	if h.Bubble {
		ops = testmode.Pick(150, 5000)
	}
	h.run(t, func(w *world) {
		w.rules.Forced = w.claims(steals) || w.claims(revokes)
		w.rules.SplitVotes = h.Skip[manyTries] != ""
		s := &stress{world: w, seed: seed, ops: ops}
		s.run()
	})
}

// stress is one run of Stress.
type stress struct {
	*world
	seed    uint64
	ops     int
	granted atomic.Int64
	refused atomic.Int64
	lost    atomic.Int64
}

const (
	stressClients = 6
	stressWorkers = 2 // of each client
	stressTTL     = lockkeeper.MinTTL
	stressTTLs    = 3 // the longest TTL, in multiples of the shortest
)

func (s *stress) run() {
	var running sync.WaitGroup
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for i := range stressClients {
		random := rand.New(rand.NewPCG(s.seed, uint64(i)))
		first := s.worker("client", func(l *link) {
			l.random.Rand = rand.New(rand.NewPCG(s.seed, uint64(100+i)))
			l.lossy, l.duplicate = i == 1, i == 2
		}, lockkeeper.SessionTTL(time.Duration(1+i%stressTTLs)*stressTTL))
		for n := range stressWorkers {
			k, own := first, rand.New(rand.NewPCG(random.Uint64(), uint64(n)))
			if n > 0 {
				k = first.sameClient()
			}
			running.Go(func() {
				for range s.ops {
					s.one(ctx, k, own)
				}
			})
		}
	}
	running.Wait()
	s.checkLosses()
	s.Logf("%d granted, %d refused or given up, %d lost", s.granted.Load(), s.refused.Load(), s.lost.Load())
	if s.granted.Load() == 0 {
		s.Error("no request was granted: the test proved nothing")
	}
	calm := s.now()
	if s.harness.Calm != nil {
		s.harness.Calm()
	}
	s.checkFree()
	if took := s.now() - calm; took > stressTTLs*stressTTL+s.tolerance() {
		s.Errorf("every path is free %s after the last fault, want at most the longest TTL and %s", took, s.tolerance())
	}
}

// checkFree fails the test unless every path is free soon. It asks as a client, which repeats calls that
// get no answer: the clients above still renew, and on a busy machine a call that reaches its deadline
// without an answer may fail a connection that others share.
func (s *stress) checkFree() {
	next := s.worker("next", nil)
	for _, path := range s.paths() {
		h, err := next.acquire(s.ctx(), demand{targets: []lockkeeper.Target{exclusive(path)}}, nil)
		if err != nil {
			s.Fatalf("%s is not free: %v", path, err)
		}
		if err := h.giveBack(s.ctx()); err != nil {
			s.Errorf("releasing %s: %v", path, err)
		}
	}
}

// one makes one random request, uses the hold, and releases it.
func (s *stress) one(ctx context.Context, k *worker, random *rand.Rand) {
	var cancel func(func())
	if random.IntN(6) == 0 {
		after := time.Duration(random.IntN(40)) * time.Millisecond
		cancel = func(giveUp func()) { time.AfterFunc(after, giveUp) }
	}
	h, err := k.acquire(ctx, s.demand(random), cancel)
	if err != nil {
		s.refused.Add(1)
		if !errors.Is(err, lockkeeper.ErrNotAcquired) && !errors.Is(err, lockkeeper.ErrUnavailable) {
			s.Errorf("%s: %v", k.name, err)
		}
		return
	}
	s.granted.Add(1)
	s.use(ctx, k, h, random)
	err = h.giveBack(ctx)
	switch {
	case errors.Is(err, lockkeeper.ErrLost):
		s.lost.Add(1)
	case err != nil && !errors.Is(err, lockkeeper.ErrUnavailable):
		s.Errorf("%s releases: %v", k.name, err)
	}
}

// use keeps the hold for a while, during which its link, an operator or a conversion may intervene.
func (s *stress) use(ctx context.Context, k *worker, h *held, random *rand.Rand) {
	// Never 0: a goroutine that waits for a timer that is due already runs it by itself, and in a bubble the
	// race detector of Go 1.26 crashes when two goroutines do that at once.
	stay := time.Duration(1+random.IntN(20)) * time.Millisecond
	outcome := random.IntN(100)
	switch {
	case outcome < 2:
		stay = s.cutFor(k, stressTTL*7/2)
	case outcome < 5:
		stay = s.cutFor(k, stressTTL/3)
	case outcome < 8 && s.claims(revokes):
		// The claim may have ended already, or the answer may be lost.
		_ = k.client.Revoke(ctx, h.Ref(), outcome == 5, lockkeeper.Label{As: k.name, Note: "stress"})
	case outcome < 20 && s.claims(converts):
		s.convertAtRandom(ctx, h)
	}
	select {
	case <-h.YieldAsked():
		if random.IntN(3) == 0 {
			s.sleep(stay)
		}
	case <-h.Done():
	case <-time.After(stay):
	}
}

// cutFor cuts the link of k and restores it after d.
func (s *stress) cutFor(k *worker, d time.Duration) time.Duration {
	k.link.cut.Store(true)
	time.AfterFunc(d, func() { k.link.cut.Store(false) })
	return d
}

func (s *stress) convertAtRandom(ctx context.Context, h *held) {
	mode := h.Grants()[0].Mode
	for _, g := range h.Grants() {
		if g.Mode != mode || mode == lockkeeper.ModePermits {
			return
		}
	}
	to := lockkeeper.ModeExclusive
	if mode == lockkeeper.ModeExclusive {
		to = lockkeeper.ModeShared
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	if err := h.convert(ctx, to); errors.Is(err, lockkeeper.ErrInvalid) {
		s.Errorf("to %s: %v", to, err)
	}
}

// paths returns a few paths, so that requests conflict.
func (s *stress) paths() []string {
	if s.claims(trees) {
		return []string{"db", "db/1", "db/2", "db/1/x", "db/1/y", "site", "site/a"}
	}
	return []string{"db", "site", "k"}
}

// demand returns a random request within the engine's features.
func (s *stress) demand(random *rand.Rand) demand {
	paths := s.paths()
	random.Shuffle(len(paths), func(i, k int) { paths[i], paths[k] = paths[k], paths[i] })
	number := 1
	if s.claims(many) && random.IntN(4) == 0 {
		number = 2 + random.IntN(2)
	}
	var d demand
	allExclusive := true
	for _, path := range paths[:number] {
		switch kind := random.IntN(10); {
		case kind < 3 && s.claims(shares):
			d.targets, allExclusive = append(d.targets, shared(path)), false
		case kind < 6 && s.claims(counts):
			limit := 1 + random.IntN(4)
			d.targets, allExclusive = append(d.targets, permits(path, 1+random.IntN(limit), limit)), false
		default:
			d.targets = append(d.targets, exclusive(path))
		}
	}
	if s.claims(ranked) {
		d.priority = random.IntN(3)
	}
	d.try = random.IntN(6) == 0
	switch kind := random.IntN(12); {
	case kind == 0 && allExclusive && s.claims(softWriters):
		d.soft = true
	case kind == 1 && s.claims(steals):
		d.more = append(d.more, lockkeeper.WithSteal())
	case kind == 2 && s.claims(steals):
		d.more = append(d.more, lockkeeper.WithStealAfter(time.Duration(random.IntN(100))*time.Millisecond))
	case kind == 3 && s.claims(maxHold):
		d.more = append(d.more, lockkeeper.WithMaxHold(10*time.Millisecond, time.Duration(random.IntN(20))*time.Millisecond))
	}
	return d
}
