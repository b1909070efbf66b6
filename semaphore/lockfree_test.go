package semaphore

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestNoLockForKnownKeysAndRefusals acquires and releases while every shard is locked: a key that
// has an entry, and any refusal, need no lock.
func TestNoLockForKnownKeysAndRefusals(t *testing.T) {
	m := New[string]()
	h, err := m.Handle("by handle")
	if err != nil {
		t.Fatal(err)
	}
	mustTake(t, m, "db")
	o := NewOwner(context.Background())
	for i := range m.shards {
		m.shards[i].mu.Lock()
		defer m.shards[i].mu.Unlock() // deferred, because the cleanup of a handle waits for it
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for name, try := range map[string]func(limit int) (*Slot, error){
			"by key":              func(limit int) (*Slot, error) { return m.TryAcquire("db", limit) },
			"for an owner":        func(limit int) (*Slot, error) { return m.TryAcquireFor(o, "db", 1, limit) },
			"by handle":           h.TryAcquire,
			"by handle and owner": func(limit int) (*Slot, error) { return h.TryAcquireFor(o, 1, limit) },
		} {
			if _, err := try(0); !errors.Is(err, ErrFull) {
				t.Errorf("%s: %v, want full", name, err)
			}
			if s, err := try(5); err != nil || s.Release() != nil {
				t.Errorf("%s: acquire and release: %v", name, err)
			}
		}
		if _, err := m.TryAcquireN("unknown", 3, 2); !errors.Is(err, ErrFull) {
			t.Errorf("unknown key: %v, want full", err)
		}
		if n := h.Held(); n != 0 {
			t.Errorf("%d held", n)
		}
		o.Close()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("an operation waits for a lock")
	}
}
