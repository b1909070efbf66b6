package semaphore

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Who is refused waits for nobody: not even for a shard that is locked, whether
// the key is there or not.
func TestARefusalLocksNothing(t *testing.T) {
	m := New[string]()
	h, err := m.Handle("full")
	if err != nil {
		t.Fatal(err)
	}
	mustTake(t, m, "full")
	for i := range m.shards {
		m.shards[i].mu.Lock()
		defer m.shards[i].mu.Unlock() // the cleanup of a handle waits for it
	}
	o := NewOwner(context.Background())
	for name, try := range map[string]func() (*Slot, error){
		"a full key":              func() (*Slot, error) { return m.TryAcquire("full", 1) },
		"a full key by handle":    func() (*Slot, error) { return h.TryAcquire(1) },
		"a full key for an owner": func() (*Slot, error) { return m.TryAcquireFor(o, "full", 1, 1) },
		"no key, limit 0":         func() (*Slot, error) { return m.TryAcquire("none", 0) },
		"no key, too many":        func() (*Slot, error) { return m.TryAcquireN("none", 3, 2) },
	} {
		answer := make(chan error, 1)
		go func() {
			_, err := try()
			answer <- err
		}()
		select {
		case err := <-answer:
			if !errors.Is(err, ErrFull) {
				t.Errorf("%s: %v, want full", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: waits for the shard", name)
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
