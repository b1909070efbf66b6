package semaphore_test

import (
	"errors"
	"math"
	"testing"

	"github.com/lockkeeper/lockkeeper/semaphore"
)

// TestInvalidRequests: arguments out of range are refused and change nothing.
func TestInvalidRequests(t *testing.T) {
	m := semaphore.New[string]()
	h, err := m.Handle("db")
	if err != nil {
		t.Fatal(err)
	}
	o := semaphore.NewOwner(t.Context())
	for _, c := range []struct {
		n, limit int
		want     error
	}{
		{0, 5, semaphore.ErrInvalid},
		{-1, 5, semaphore.ErrInvalid},
		{math.MinInt, math.MaxInt, semaphore.ErrInvalid},
		{1, -1, semaphore.ErrInvalid},
		{1, math.MinInt, semaphore.ErrInvalid},
		{1, 0, semaphore.ErrFull},
		{6, 5, semaphore.ErrFull},
		{math.MaxInt, math.MaxInt - 1, semaphore.ErrFull},
	} {
		for name, try := range map[string]func() (*semaphore.Slot, error){
			"by key":              func() (*semaphore.Slot, error) { return m.TryAcquireN("db", c.n, c.limit) },
			"by handle":           func() (*semaphore.Slot, error) { return h.TryAcquireN(c.n, c.limit) },
			"for an owner":        func() (*semaphore.Slot, error) { return m.TryAcquireFor(o, "db", c.n, c.limit) },
			"by handle and owner": func() (*semaphore.Slot, error) { return h.TryAcquireFor(o, c.n, c.limit) },
		} {
			if s, err := try(); s != nil || !errors.Is(err, c.want) {
				t.Errorf("%d under %d %s: %v, %v; want %v", c.n, c.limit, name, s, err, c.want)
			}
		}
	}
	nothingHeld(t, m)
}

// TestLargestNumbers: sums do not overflow.
func TestLargestNumbers(t *testing.T) {
	m := semaphore.New[string]()
	all, err := m.TryAcquireN("db", math.MaxInt, math.MaxInt)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.TryAcquireN("db", math.MaxInt, math.MaxInt); !errors.Is(err, semaphore.ErrFull) {
		t.Errorf("the same again: %v, want full", err)
	}
	release(t, all)
	nothingHeld(t, m)
}

// TestKeysUnequalToThemselves: a NaN could be acquired but never found again.
func TestKeysUnequalToThemselves(t *testing.T) {
	m := semaphore.New[float64]()
	if _, err := m.TryAcquire(math.NaN(), 1); !errors.Is(err, semaphore.ErrInvalid) {
		t.Errorf("a NaN as key: %v", err)
	}
	if _, err := m.Handle(math.NaN()); !errors.Is(err, semaphore.ErrInvalid) {
		t.Errorf("a handle of NaN: %v", err)
	}
	if _, err := m.TryAcquire(math.Copysign(0, -1), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := m.TryAcquire(0, 1); !errors.Is(err, semaphore.ErrFull) {
		t.Errorf("0 beside -0, which equals it: %v, want full", err)
	}
}

// TestUncomparableKeys: a key of a type that cannot be compared panics, as in a map, and leaves no
// lock behind.
func TestUncomparableKeys(t *testing.T) {
	m := semaphore.New[any]()
	o := semaphore.NewOwner(t.Context())
	for name, try := range map[string]func(){
		"by key":       func() { _, _ = m.TryAcquire([]int{1}, 1) },
		"for an owner": func() { _, _ = m.TryAcquireFor(o, []int{1}, 1, 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			try()
		}()
	}
	if _, err := m.TryAcquireFor(o, 1, 1, 1); err != nil {
		t.Error(err)
	}
	o.Close()
	m.Check(t)
}

// TestErrorsStateTheRange: an error names the argument and the valid range.
func TestErrorsStateTheRange(t *testing.T) {
	m := semaphore.New[string]()
	for _, c := range []struct {
		n, limit int
		want     string
	}{
		{0, 5, "invalid request: 0 slots, must be 1 or more"},
		{-1, -1, "invalid request: -1 slots, must be 1 or more"},
		{1, -1, "invalid request: limit -1, must be 0 or more"},
		{6, 5, "full: the limit is below the number of slots asked for"},
	} {
		if _, err := m.TryAcquireN("db", c.n, c.limit); err == nil || err.Error() != c.want {
			t.Errorf("%d under %d: %v, want %q", c.n, c.limit, err, c.want)
		}
	}
}
