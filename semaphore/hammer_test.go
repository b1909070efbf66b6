package semaphore_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/semaphore"
)

// withThreads runs a test with one thread, with one for each core, and with more. With more, the
// operating system preempts threads between any two steps.
func withThreads(t *testing.T, test func(t *testing.T)) {
	was := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(was)
	for _, threads := range []int{1, was, 4 * was} {
		runtime.GOMAXPROCS(threads)
		t.Run(strconv.Itoa(threads)+" threads", test)
	}
}

// hammer is a manager with few keys, which come and go all the time, and the expected counts.
type hammer struct {
	*testing.T
	m      *semaphore.Manager[int]
	inside [hammered]atomic.Int64 // at most the number of held slots
	plain  [hammered]int          // guarded by the only slot of the key
}

const (
	hammered = 6
	strikers = 4
)

// limit is 1 for a third of the keys, and for a third as much as all goroutines can ask for.
func (h *hammer) limit(key int) int { return []int{1, 3, 2 * strikers}[key%3] }

// strike acquires and releases a key. Sometimes it yields in between.
func (h *hammer) strike(r *rand.Rand, key, n int, acquire func() (*semaphore.Slot, error), end func(*semaphore.Slot)) {
	slot, err := acquire()
	limit := h.limit(key)
	if err != nil {
		if !errors.Is(err, semaphore.ErrFull) || limit == 2*strikers {
			h.Errorf("%d slots of a key whose limit is never reached: %v", n, err)
		}
		return
	}
	if in := h.inside[key].Add(int64(n)); in > int64(limit) {
		h.Errorf("%d slots held with limit %d", in, limit)
	}
	if o := slot.Ordinal(); o < n || o > limit {
		h.Errorf("ordinal %d of %d slots with limit %d", o, n, limit)
	}
	if limit == 1 {
		h.plain[key]++ // the race detector checks that one holder happens before the next
	}
	if r.IntN(8) == 0 {
		runtime.Gosched()
	}
	h.inside[key].Add(-int64(n))
	end(slot)
}

// TestConcurrentUse acquires and releases a few keys in several goroutines as fast as they can, by
// key, by handles that come and go, and for owners that end.
func TestConcurrentUse(t *testing.T) {
	seed := testmode.Seed(t)
	withThreads(t, func(t *testing.T) {
		for _, keep := range []int{0, 2} {
			h := &hammer{T: t, m: semaphore.OneShard[int](keep)}
			var all sync.WaitGroup
			for w := range strikers {
				all.Go(func() { h.work(rand.New(rand.NewPCG(seed, uint64(w)))) })
			}
			all.Wait()
			for key, n := range h.m.All() {
				t.Errorf("%d of key %d held at the end", n, key)
			}
			h.m.Check(t)
			if t.Failed() {
				return
			}
		}
	})
}

func (h *hammer) work(r *rand.Rand) {
	owner := semaphore.NewOwner(h.Context())
	defer func() { owner.Close() }()
	for range 40_000 {
		key := r.IntN(hammered)
		n := 1 + r.IntN(min(2, h.limit(key)))
		release := func(s *semaphore.Slot) {
			if err := s.Release(); err != nil {
				h.Error(err)
			}
		}
		switch r.IntN(16) {
		default:
			h.strike(r, key, n, func() (*semaphore.Slot, error) { return h.m.TryAcquireN(key, n, h.limit(key)) }, release)
		case 0:
			if key < hammered/2 { // a handle keeps its key until it is collected; these keys come and go
				break
			}
			handle, err := h.m.Handle(key)
			if err != nil {
				h.Error(err)
				return
			}
			h.strike(r, key, n, func() (*semaphore.Slot, error) { return handle.TryAcquireN(n, h.limit(key)) }, release)
		case 1, 2, 3:
			h.strike(r, key, n, func() (*semaphore.Slot, error) { return h.m.TryAcquireFor(owner, key, n, h.limit(key)) },
				release)
		case 4:
			h.strike(r, key, n, func() (*semaphore.Slot, error) {
				return h.m.TryAcquireFor(owner, key, n, h.limit(key))
			}, func(*semaphore.Slot) { owner.Close() })
			owner.Close()
			owner = semaphore.NewOwner(h.Context())
		case 5:
			if held := h.m.Held(key); held < 0 || held > h.limit(key) {
				h.Errorf("Held returns %d for key %d", held, key)
			}
		case 6:
			for key, n := range h.m.All() {
				if n < 1 || n > h.limit(key) {
					h.Errorf("All yields %d for key %d", n, key)
				}
			}
		}
		if h.Failed() {
			return
		}
	}
}
