package semaphore

import (
	"testing"
	"time"
)

// Who uses a key that is there, or is refused, needs no lock of the manager's: all of
// it goes on while somebody has locked every shard.
func TestNoLockForAKeyThatIsThere(t *testing.T) {
	m := New[string]()
	h, err := m.Handle("by handle")
	if err != nil {
		t.Fatal(err)
	}
	o := NewOwner(t.Context())
	if _, err := m.TryAcquire("db", 5); err != nil {
		t.Fatal(err)
	}
	for i := range m.shards {
		m.shards[i].mu.Lock()
	}
	through := make(chan struct{})
	go func() {
		defer close(through)
		for _, try := range []func(limit int) (*Slot, error){
			func(limit int) (*Slot, error) { return m.TryAcquire("db", limit) },
			func(limit int) (*Slot, error) { return m.TryAcquireFor(o, "db", 1, limit) },
			h.TryAcquire,
		} {
			if _, err := try(0); err == nil {
				t.Error("granted under a limit of 0")
			}
			if s, err := try(5); err != nil || s.Release() != nil {
				t.Errorf("acquire and release: %v", err)
			}
		}
		if n := h.Held(); n != 0 {
			t.Errorf("%d held", n)
		}
		o.Close()
	}()
	select {
	case <-through:
	case <-time.After(10 * time.Second):
		t.Error("something waits for a lock")
	}
	for i := range m.shards {
		m.shards[i].mu.Unlock()
	}
	<-through
}
