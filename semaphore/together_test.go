package semaphore_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/semaphore"
)

// A goroutine that is started for a race is often too late for it. So here two of
// them wait for each other before each round, and start within nanoseconds.

// meeting is where they wait.
type meeting struct {
	round, through atomic.Int64
	second         func()
}

// wait waits until a number is at least what it has to be.
func wait(n *atomic.Int64, want int64) {
	for i := 0; n.Load() < want; i++ {
		if i%100 == 99 {
			runtime.Gosched()
		}
	}
}

// together runs rounds of two functions side by side, and what comes after both, as
// many as there is time for: some ten thousand. One of them starts a little later than
// the other, each time by another while.
func together(t *testing.T, round func(i int) (first, second, after func())) {
	seed := testmode.Seed(t)
	var m meeting
	delays := rand.New(rand.NewPCG(seed, 0))
	go func() {
		for i := int64(1); ; i++ {
			if wait(&m.round, i); m.round.Load() > i {
				return
			}
			m.second()
			m.through.Store(i)
		}
	}()
	defer m.round.Store(math.MaxInt64) // also if a round fails
	for i, begin := 0, time.Now(); time.Since(begin) < time.Second/4; i++ {
		first, second, after := round(i)
		early, late := 0, delays.IntN(400)
		if i%2 == 0 {
			early, late = late, early
		}
		m.second = func() { pass(late); second() }
		m.round.Store(int64(i + 1))
		pass(early)
		first()
		wait(&m.through, int64(i+1))
		after()
		if t.Failed() {
			t.Fatalf("round %d", i)
		}
	}
}

// passed is what pass works on, so that it is not left out.
var passed atomic.Int64

// pass lets a little time go by: a nanosecond or less for each turn.
func pass(turns int) {
	sum := int64(0)
	for i := range int64(turns) {
		sum ^= i * sum
	}
	if sum != 0 {
		passed.Add(1)
	}
}

// Two bring a key at once: one semaphore comes of it, and they are told apart.
func TestTwoMakeOneKey(t *testing.T) {
	m := semaphore.OneShard[int](0)
	together(t, func(i int) (first, second, after func()) {
		var a, b *semaphore.Slot
		return func() { a, _ = m.TryAcquire(i, 1+i%2) }, func() { b, _ = m.TryAcquire(i, 1+i%2) }, func() {
			switch {
			case i%2 == 0 && (a == nil) == (b == nil):
				t.Fatalf("under a limit of 1 they got %v and %v", a, b)
			case i%2 == 1 && (a == nil || b == nil || a.Ordinal()+b.Ordinal() != 3):
				t.Fatalf("under a limit of 2 they got %v and %v", a, b)
			case m.Held(i) != 1+i%2:
				t.Fatalf("%d held of %d", m.Held(i), 1+i%2)
			}
			_, _ = a.Release(), b.Release()
			nothingOf(t, m)
		}
	})
}

// One releases the last slot of a key, with which the key goes, while another acquires it.
func TestLastReleaseBesideAcquire(t *testing.T) {
	m := semaphore.OneShard[int](0)
	together(t, func(int) (first, second, after func()) {
		a, err := m.TryAcquire(1, 1)
		if err != nil {
			t.Fatal(err)
		}
		var b *semaphore.Slot
		return func() { release(t, a) }, func() { b, _ = m.TryAcquire(1, 1) }, func() {
			held := 0
			if b != nil {
				held = 1
			}
			if b != nil && b.Ordinal() != 1 || m.Held(1) != held {
				t.Fatalf("%d held, and got %v", m.Held(1), b)
			}
			_ = b.Release()
			nothingOf(t, m)
		}
	})
}

// Whoever closes an owner, when Close returns all is free, also what somebody else who
// closes it, or releases, is just freeing.
func TestCloseBesideCloseAndRelease(t *testing.T) {
	m := semaphore.OneShard[int](0)
	together(t, func(i int) (first, second, after func()) {
		o := semaphore.NewOwner(t.Context())
		var slots []*semaphore.Slot
		for key := range 3 {
			s, err := m.TryAcquireFor(o, key, 1, 1)
			if err != nil {
				t.Fatal(err)
			}
			slots = append(slots, s)
		}
		closes := func() {
			o.Close()
			for key := range 3 {
				if n := m.Held(key); n != 0 {
					t.Errorf("round %d: %d of key %d held after Close", i, n, key)
				}
			}
		}
		other := closes
		if i%4 < 2 {
			other = func() {
				for _, s := range slots {
					_ = s.Release()
				}
			}
		}
		return closes, other, func() { nothingOf(t, m) }
	})
}

// What an owner gets while it is closed is free when both are through.
func TestCloseBesideAcquire(t *testing.T) {
	m := semaphore.OneShard[int](0)
	together(t, func(int) (first, second, after func()) {
		o := semaphore.NewOwner(t.Context())
		return o.Close, func() { _, _ = m.TryAcquireFor(o, 1, 1, 1) }, func() { nothingOf(t, m) }
	})
}

func nothingOf(t *testing.T, m *semaphore.Manager[int]) {
	t.Helper()
	for key, n := range m.All() {
		t.Errorf("%d of key %d held", n, key)
	}
	m.Check(t)
}
