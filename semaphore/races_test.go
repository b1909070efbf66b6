package semaphore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/semaphore"
)

// The schedules that break other counting semaphores, run by goroutines as they
// come. Every interleaving of some is looked at in internal packages; here is the
// real thing, with the race detector, and with more at once.

// rounds is how often a race is run.
const rounds = 500

// TestReleaseBetweenAttempts is flaw F0.1: while others try at a full key without
// end, each release lets exactly one in.
func TestReleaseBetweenAttempts(t *testing.T) {
	const limit = 2
	m := semaphore.New[string]()
	tokens := make(chan *semaphore.Slot, limit)
	for range limit {
		tokens <- acquire(t, m, "db", limit)
	}
	var granted atomic.Int32
	granted.Store(limit)
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if s, err := m.TryAcquire("db", limit); err == nil {
					if n := granted.Add(1); n > limit || s.Ordinal() > limit {
						t.Errorf("%d held, ordinal %d, limit %d", n, s.Ordinal(), limit)
					}
					tokens <- s
				}
			}
		})
	}
	for range rounds {
		s := <-tokens
		granted.Add(-1)
		release(t, s)
	}
	close(stop)
	all.Wait()
	for range m.Held("db") {
		release(t, <-tokens)
	}
	nothingHeld(t, m)
}

// TestFloorRace is flaw F0.2: one slot each of one or two resources, and a release
// beside three who acquire.
func TestFloorRace(t *testing.T) {
	for range rounds {
		m := semaphore.New[string]()
		first := acquire(t, m, "db", 1)
		var granted atomic.Int32
		granted.Store(1)
		var all sync.WaitGroup
		all.Go(func() {
			granted.Add(-1)
			release(t, first)
		})
		for range 3 {
			all.Go(func() {
				if _, err := m.TryAcquire("db", 2); err == nil {
					if n := granted.Add(1); n > 2 {
						t.Errorf("%d hold, limit 2", n)
					}
				}
			})
		}
		all.Wait()
		if n := int(granted.Load()); n != m.Held("db") {
			t.Fatalf("%d hold, and %d are counted", n, m.Held("db"))
		}
		play(t, m, "db", fmt.Sprintf("3:%d", granted.Load()+1))
	}
}

// TestManyMakeOneKey is flaw F0.6: goroutines that bring a key all at once, with
// different views, and take it away again.
func TestManyMakeOneKey(t *testing.T) {
	m := semaphore.New[string]()
	for round := range rounds {
		key := fmt.Sprint("key ", round)
		var won atomic.Int32
		var all sync.WaitGroup
		slots := make([]*semaphore.Slot, 8)
		for i := range slots {
			all.Go(func() {
				if s, err := m.TryAcquire(key, 1+i%3); err == nil {
					won.Add(1)
					slots[i] = s
				}
			})
		}
		all.Wait()
		if n := int(won.Load()); n != 3 && n != 2 && n != 1 || n != m.Held(key) {
			t.Fatalf("%d got one, and %d are counted", n, m.Held(key))
		}
		for _, s := range slots {
			if s != nil {
				all.Go(func() { release(t, s) })
			}
		}
		all.Wait()
	}
	nothingHeld(t, m)
}

// TestNobodyIsRefusedFalsely is flaw F0.9: as many workers as there are slots never
// find a key full, though keys come and go all the time.
func TestNobodyIsRefusedFalsely(t *testing.T) {
	const workers = 4
	seed := testmode.Seed(t)
	m := semaphore.New[int]()
	for key := range 20_000 { // enough that idle keys leave at once
		if _, err := m.TryAcquire(-1-key, 1); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			for range 20 * rounds {
				s, err := m.TryAcquire(r.IntN(3), workers)
				if err != nil {
					t.Errorf("with at most %d held: %v", workers-1, err)
					return
				}
				if err := s.Release(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	for key, n := range m.All() {
		if key >= 0 {
			t.Errorf("%d of %d held at the end", n, key)
		}
	}
	m.Check(t)
}

// TestDoubleReleaseAtOnce lets several goroutines release the same slots.
func TestDoubleReleaseAtOnce(t *testing.T) {
	m := semaphore.New[string]()
	for range rounds {
		keep, s := acquire(t, m, "db", 2), acquire(t, m, "db", 2)
		var freed atomic.Int32
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				switch err := s.Release(); {
				case err == nil:
					freed.Add(1)
				case !errors.Is(err, semaphore.ErrNotHeld):
					t.Error(err)
				}
			})
		}
		all.Wait()
		if freed.Load() != 1 || m.Held("db") != 1 {
			t.Fatalf("%d releases of one slot, %d held, want one each", freed.Load(), m.Held("db"))
		}
		release(t, keep)
	}
}
