package semaphore_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/lockkeeper/lockkeeper/semaphore"
)

// TestHandleAndKeyAreOneSemaphore acquires by handle and by key in turn.
func TestHandleAndKeyAreOneSemaphore(t *testing.T) {
	m := semaphore.New[string]()
	h, err := m.Handle("db")
	if err != nil {
		t.Fatal(err)
	}
	fill(t, m)
	for range 3 {
		play(t, m, "db", "1:1 1:full -1")
		s, err := h.TryAcquire(2)
		if err != nil || s.Ordinal() != 1 || m.Held("db") != 1 || h.Held() != 1 {
			t.Fatalf("by handle: %v, %v; %d held", s, err, m.Held("db"))
		}
		play(t, m, "db", "1:full 2:2 2:full -1")
		other, err := m.Handle("db")
		if err != nil || other.Held() != 1 {
			t.Fatalf("another handle: %d held, %v", other.Held(), err)
		}
		release(t, s)
	}
	if h.Held() != 0 {
		t.Errorf("%d held by handle at the end", h.Held())
	}
	m.Check(t)
	runtime.KeepAlive(h)
}

// fill holds a slot of so many keys that no other key stays while it is idle.
func fill(t *testing.T, m *semaphore.Manager[string]) {
	t.Helper()
	for i := range 10_000 {
		acquire(t, m, fmt.Sprint("other ", i), 1)
	}
}
