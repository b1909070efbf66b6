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

// Stress keeps clients busy at random with all that the engine claims: modes,
// trees, many targets, priorities, stealing, soft writers, tries, changes of mind,
// conversions, revocations, sessions that are cut off for longer and shorter than
// their TTL, wires that lose and double. Then all is mended, and everything must
// be free. The history of it is judged. It takes its
// seed from the flag -seed, and logs how to replay it. Goroutines are not seeded, so the same
// seed does the same things, but not always in the same order.
func Stress(t *testing.T, h Harness) {
	seed := testmode.Seed(t)
	ops := testmode.Pick(15, 300) // that each of the workers asks for
	if h.Bubble {
		ops = testmode.Pick(150, 5000)
	}
	h.run(t, func(w *world) {
		w.rules.Forced = w.claims(steals) || w.claims(operators)
		s := &stress{world: w, seed: seed, ops: ops}
		s.run()
	})
}

// stress is one such run.
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
		first := s.worker("client", func(l *wire) {
			l.random.Rand = rand.New(rand.NewPCG(s.seed, uint64(100+i)))
			l.dropping, l.twice = i == 1, i == 2
		}, lockkeeper.SessionTTL(time.Duration(1+i%stressTTLs)*stressTTL))
		for n := range stressWorkers {
			k, own := first, rand.New(rand.NewPCG(random.Uint64(), uint64(n)))
			if n > 0 {
				k = first.beside()
			}
			running.Go(func() {
				for range s.ops {
					s.one(ctx, k, own)
				}
			})
		}
	}
	running.Wait()
	s.look()
	s.Logf("%d granted, %d refused or given up, %d lost", s.granted.Load(), s.refused.Load(), s.lost.Load())
	if s.granted.Load() == 0 {
		s.Error("nobody was ever granted anything: the test proved nothing")
	}
	calm := s.now()
	if s.harness.Calm != nil {
		s.harness.Calm()
	}
	for _, path := range s.paths() {
		s.free(exclusive(path))
	}
	if took := s.now() - calm; took > stressTTLs*stressTTL+late {
		s.Errorf("everything is free %s after all was mended, want at most the longest TTL and %s", took, late)
	}
}

// one asks for something, uses it, and gives it back.
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
	err = h.give(ctx)
	switch {
	case errors.Is(err, lockkeeper.ErrLost):
		s.lost.Add(1)
	case err != nil && !errors.Is(err, lockkeeper.ErrUnavailable):
		s.Errorf("%s gives back: %v", k.name, err)
	}
}

// use holds for a while, with all that may happen meanwhile.
func (s *stress) use(ctx context.Context, k *worker, h *held, random *rand.Rand) {
	stay := time.Duration(random.IntN(20)) * time.Millisecond
	fate := random.IntN(100)
	switch {
	case fate < 2:
		stay = s.cutFor(k, stressTTL*7/2)
	case fate < 5:
		stay = s.cutFor(k, stressTTL/3)
	case fate < 8 && s.claims(operators):
		// The answer may be that it has ended already, or be lost on the wire.
		_ = k.client.Revoke(ctx, h.Ref(), fate == 5, lockkeeper.Label{As: k.name, Note: "stress"})
	case fate < 20 && s.claims(converts):
		s.convertAtRandom(ctx, h)
	}
	select {
	case <-h.YieldAsked():
		if random.IntN(3) == 0 {
			s.pass(stay)
		}
	case <-h.Done():
	case <-time.After(stay):
	}
}

// cutFor cuts the wire of k, and mends it after d.
func (s *stress) cutFor(k *worker, d time.Duration) time.Duration {
	k.wire.cut.Store(true)
	time.AfterFunc(d, func() { k.wire.cut.Store(false) })
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

// paths are a few, so that there are always others who want the same.
func (s *stress) paths() []string {
	if s.claims(trees) {
		return []string{"db", "db/1", "db/2", "db/1/x", "db/1/y", "site", "site/a"}
	}
	return []string{"db", "site", "k"}
}

// demand makes up what to ask for, of what the engine claims.
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
	case kind == 0 && allExclusive && s.claims(manners):
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
