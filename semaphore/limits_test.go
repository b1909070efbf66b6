package semaphore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/semaphore"
)

// play runs the steps of a session on one key. LIMIT:ORDINAL acquires with that limit and expects
// that ordinal, LIMIT:full expects ErrFull, and -N releases the slot of the N-th granted acquire.
func play(t *testing.T, m *semaphore.Manager[string], key, session string) {
	t.Helper()
	var slots []*semaphore.Slot
	for i, step := range strings.Fields(session) {
		if n, ok := strings.CutPrefix(step, "-"); ok {
			if err := slots[number(t, n)-1].Release(); err != nil {
				t.Fatalf("step %d, %s: %v", i+1, step, err)
			}
			continue
		}
		limit, want, _ := strings.Cut(step, ":")
		slot, err := m.TryAcquire(key, number(t, limit))
		got := "full"
		if err == nil {
			got = strconv.Itoa(slot.Ordinal())
			slots = append(slots, slot)
		} else if !errors.Is(err, semaphore.ErrFull) {
			t.Fatalf("step %d, %s: %v", i+1, step, err)
		}
		if got != want {
			t.Fatalf("step %d, %s: got %s", i+1, step, got)
		}
	}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLimits has callers that know of one, two or three resources with P slots each, and so acquire
// with the limits P, 2P and 3P.
func TestLimits(t *testing.T) {
	refused := strings.Repeat("1:full ", 1000)
	for _, c := range []struct{ name, session string }{
		{"T0.1 one caller whose limit changes", "3:1 3:2 3:3 3:full 6:4 3:full -1 3:full -2 3:3 3:full"},
		{"T0.2 callers with different limits in turn", "3:1 3:2 6:3 3:full 6:4 -1 -2 -3 -4 3:1"},
		{"T0.3 fill and drain", "9:1 9:2 9:3 9:4 9:5 9:6 9:7 9:8 -8 -7 -6 -5 -4 -3 -2 -1 9:1"},
		{"T0.5 a higher limit while slots are held", "5:1 5:2 5:3 5:4 5:5 10:6 -1 5:full 10:6"},
		{"T0.11 f refused acquires change nothing", "1:1 " + refused + "2:2 " + refused + "-1 -2 1:1"},
		{"T0.11 g the lower limit is refused, and no slot is lost", "3:1 3:2 6:3 6:4 3:full -1 -2 -3 3:2 3:3 3:full"},
		{"full for every limit after two resources were removed", "2:1 2:2 2:full 3:3 2:full 3:full -1 2:full 3:3 -2 -3 2:2"},
		{"no resources", "0:full 1:1 0:full -1 0:full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := semaphore.New[string]()
			play(t, m, "db", c.session)
			play(t, m, "another key", "1:1 1:full -1")
		})
	}
}

// TestReleaseWithoutSlot is the second release of case T0.3, and case T0.11 a.
func TestReleaseWithoutSlot(t *testing.T) {
	m := semaphore.New[string]()
	mine := acquire(t, m, "db", 1)
	stranger := acquire(t, m, "db", 2)
	release(t, stranger)
	for name, s := range map[string]*semaphore.Slot{"released": stranger, "zero": new(semaphore.Slot), "nil": nil} {
		if err := s.Release(); !errors.Is(err, semaphore.ErrNotHeld) {
			t.Errorf("release of a slot that is %s: %v, want ErrNotHeld", name, err)
		}
	}
	if _, err := m.TryAcquire("db", 1); !errors.Is(err, semaphore.ErrFull) {
		t.Fatalf("after releases without a slot: %v, want full", err)
	}
	release(t, mine)
	if err := mine.Release(); !errors.Is(err, semaphore.ErrNotHeld) {
		t.Errorf("second release: %v, want ErrNotHeld", err)
	}
}

// TestOwnerEndsBesideHigherLimit is case T0.8: five holders with limit 5, one with limit 10, and one
// of the five ends.
func TestOwnerEndsBesideHigherLimit(t *testing.T) {
	m := semaphore.New[string]()
	var workers []*semaphore.Owner
	for range 5 {
		o := semaphore.NewOwner(t.Context())
		if _, err := m.TryAcquireFor(o, "db", 1, 5); err != nil {
			t.Fatal(err)
		}
		workers = append(workers, o)
	}
	acquire(t, m, "db", 10)
	workers[0].Close()
	play(t, m, "db", "5:full 10:6 10:7")
}

// TestEndFreesSlotsOfAnyLimit is case T0.11 d: the manager has no limit, so the end of an owner frees
// its slots whatever limits they were acquired with.
func TestEndFreesSlotsOfAnyLimit(t *testing.T) {
	m := semaphore.New[string]()
	play(t, m, "another key", "5:1 5:2 5:3 5:4 5:5 5:full")
	o := semaphore.NewOwner(t.Context())
	for range 3 {
		if _, err := m.TryAcquireFor(o, "db", 1, 3); err != nil {
			t.Fatal(err)
		}
	}
	play(t, m, "db", "3:full")
	o.Close()
	play(t, m, "db", "3:1 3:2 3:3 3:full")
}

// TestLimitIsReachedExactly is case T0.9: for any limit and key, as many slots as the limit are
// granted, and then again.
func TestLimitIsReachedExactly(t *testing.T) {
	seed := testmode.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	m := semaphore.New[string]()
	for i := range 100 {
		limit := (2 + r.IntN(198)) * (2 + r.IntN(98))
		key := fmt.Sprint(i, r.Uint64())
		slots := make([]*semaphore.Slot, limit)
		for i := range slots {
			if slots[i] = acquire(t, m, key, limit); slots[i].Ordinal() != i+1 {
				t.Fatalf("limit %d: ordinal %d, want %d", limit, slots[i].Ordinal(), i+1)
			}
		}
		if _, err := m.TryAcquire(key, limit); !errors.Is(err, semaphore.ErrFull) {
			t.Fatalf("limit %d: one more: %v, want full", limit, err)
		}
		for _, s := range slots {
			release(t, s)
		}
		release(t, acquire(t, m, key, limit))
	}
	nothingHeld(t, m)
}

// TestSeveralAtOnce is about acquires of more than one slot.
func TestSeveralAtOnce(t *testing.T) {
	m := semaphore.New[string]()
	three, err := m.TryAcquireN("db", 3, 5)
	if err != nil || three.N() != 3 || three.Ordinal() != 3 {
		t.Fatalf("%+v, %v", three, err)
	}
	if _, err := m.TryAcquireN("db", 3, 5); !errors.Is(err, semaphore.ErrFull) {
		t.Fatalf("3 more of 5: %v, want full: all or none", err)
	}
	if held := m.Held("db"); held != 3 {
		t.Fatalf("%d held after a refusal, want 3", held)
	}
	two, err := m.TryAcquireN("db", 2, 5)
	if err != nil || two.Ordinal() != 5 {
		t.Fatalf("%+v, %v", two, err)
	}
	release(t, three)
	if held := m.Held("db"); held != 2 {
		t.Fatalf("%d held, want 2", held)
	}
	release(t, two)
	nothingHeld(t, m)
}

// TestManagersAreIndependent uses the same key in two managers.
func TestManagersAreIndependent(t *testing.T) {
	one, other := semaphore.New[string](), semaphore.New[string]()
	acquire(t, one, "db", 1)
	play(t, other, "db", "1:1 1:full")
}

func acquire(t *testing.T, m *semaphore.Manager[string], key string, limit int) *semaphore.Slot {
	t.Helper()
	s, err := m.TryAcquire(key, limit)
	if err != nil {
		t.Fatalf("a slot of %s with limit %d: %v", key, limit, err)
	}
	return s
}

func release(t *testing.T, s *semaphore.Slot) {
	t.Helper()
	if err := s.Release(); err != nil {
		t.Fatal(err)
	}
}

func nothingHeld(t *testing.T, m *semaphore.Manager[string]) {
	t.Helper()
	for key, n := range m.All() {
		t.Errorf("%d of %s held at the end", n, key)
	}
	m.Check(t)
}
