package canal

import (
	"context"
	"runtime"
	"testing"
)

// slowKey is where a slot goes back to, in its own time.
type slowKey struct{ begun, goOn, freed chan struct{} }

func (k *slowKey) free(int) {
	close(k.begun)
	<-k.goOn
	close(k.freed)
}

// TestCloseWaitsForReleases stops a Release in its middle: an owner that is closed
// meanwhile is not through before it, and does not forget its slot for those that
// come after.
func TestCloseWaitsForReleases(t *testing.T) {
	key := &slowKey{begun: make(chan struct{}), goOn: make(chan struct{}), freed: make(chan struct{})}
	o := NewOwner(context.Background())
	slow, err := o.own(func() (grant, error) { return grant{of: key, n: 1}, nil })
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := slow.Release(); err != nil {
			t.Error(err)
		}
	}()
	<-key.begun
	m := New[string]()
	for range 20 { // so many that the owner forgets those that are settled
		s, err := m.TryAcquireFor(o, "db", 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		mustFree(t, s)
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		o.Close()
		select {
		case <-key.freed:
		default:
			t.Error("Close returned while a slot was being released")
		}
	}()
	for range 1000 {
		runtime.Gosched()
	}
	close(key.goOn)
	<-closed
}

// TestOwnersListStaysShort is about an owner that gets slots again and again.
func TestOwnersListStaysShort(t *testing.T) {
	m, o := New[string](), NewOwner(context.Background())
	defer o.Close()
	var all []*Slot
	for most := range 40 {
		for range 500 {
			s, err := m.TryAcquireFor(o, "db", 1, 1000)
			if err != nil {
				t.Fatal(err)
			}
			if all = append(all, s); len(all) > most {
				mustFree(t, all[0])
				all = all[1:]
			}
			if length := len(o.slots); length > max(2*(most+1), 4) {
				t.Fatalf("a list of %d slots, at most %d held", length, most+1)
			}
		}
	}
}

// TestWhatIsAllocated is about the memory that requests cost: none if they are
// refused or their slot stays in its function.
func TestWhatIsAllocated(t *testing.T) {
	if underRaceDetector {
		t.Skip("the race detector allocates")
	}
	m := New[string]()
	mustTake(t, m, "full")
	o := NewOwner(context.Background())
	handle, err := m.Handle("by handle")
	if err != nil {
		t.Fatal(err)
	}
	var kept *Slot
	for name, c := range map[string]struct {
		want float64
		do   func()
	}{
		"released at the end": {0, func() {
			s, err := m.TryAcquire("db", 3)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Release()
		}},
		"by handle": {0, func() {
			s, err := handle.TryAcquireN(2, 3)
			if err != nil {
				t.Error(err)
			}
			_ = s.Release()
		}},
		"refused":                      {0, func() { _, _ = m.TryAcquire("full", 1) }},
		"refused, unknown key":         {0, func() { _, _ = m.TryAcquire("nobody's", 0) }},
		"refused for an owner":         {0, func() { _, _ = m.TryAcquireFor(o, "full", 1, 1) }},
		"kept beyond its function":     {1, func() { kept, _ = m.TryAcquire("db", 3); _ = kept.Release() }},
		"for an owner, which notes it": {1, func() { s, _ := m.TryAcquireFor(o, "db", 1, 3); _ = s.Release() }},
	} {
		if got := testing.AllocsPerRun(1000, c.do); got != c.want {
			t.Errorf("%s: %v allocations, want %v", name, got, c.want)
		}
	}
}

// TestRefusedLeavesNoKey is about attempts that are refused, each for a key of its own.
func TestRefusedLeavesNoKey(t *testing.T) {
	m := New[string]()
	for i := range 10_000 {
		if _, err := m.TryAcquire(key(i), 0); err == nil {
			t.Fatal("granted under a limit of 0")
		}
	}
	if entries, _, _ := footprint(m); entries > 0 {
		t.Errorf("%d keys are left", entries)
	}
}
