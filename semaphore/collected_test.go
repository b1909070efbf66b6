package semaphore

import (
	"context"
	"runtime"
	"testing"
	"weak"
)

// collected runs the garbage collector until is returns true.
func collected(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 1000 {
		if is() {
			return
		}
		runtime.GC()
		runtime.Gosched()
	}
	t.Errorf("not collected: %s", what)
}

func pinned[K comparable](m *Manager[K]) (pins int) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		for c := range *s.cells.Load() {
			if e := (*s.cells.Load())[c].Load(); e != nil {
				pins += e.pins
			}
		}
		s.mu.Unlock()
	}
	return pins
}

// TestKeysLeaveWithTheirHandles drops handles: their keys leave.
func TestKeysLeaveWithTheirHandles(t *testing.T) {
	m := New[int]()
	var kept []*Handle[int]
	for i := range 10_000 {
		h, err := m.Handle(i / 2) // two of each key
		if err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			kept = append(kept, h)
		}
	}
	collected(t, "pins of lost handles", func() bool { return pinned(m) == len(kept) })
	m.Check(t)
	if n := m.entries(); n > len(m.shards)*maxIdle+len(kept) {
		t.Errorf("%d entries with %d handles left", n, len(kept))
	}
	for _, h := range kept {
		if s, err := h.TryAcquire(1); err != nil || s.Release() != nil {
			t.Errorf("by a handle that was kept: %v", err)
		}
	}
	runtime.KeepAlive(kept)
}

// TestSlotKeepsItsHandle drops a handle before its slot is released: the key stays until then.
func TestSlotKeepsItsHandle(t *testing.T) {
	m := OneShard[int](0)
	h, err := m.Handle(1)
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.TryAcquire(1)
	if err != nil {
		t.Fatal(err)
	}
	h = nil
	for range 10 {
		runtime.GC()
	}
	if m.Held(1) != 1 || pinned(m) != 1 {
		t.Errorf("%d held and %d pins, want one each", m.Held(1), pinned(m))
	}
	if err := s.Release(); err != nil {
		t.Error(err)
	}
	s = nil
	collected(t, "the handle", func() bool { return pinned(m) == 0 })
	if m.Check(t); m.entries() != 0 {
		t.Errorf("%d entries left", m.entries())
	}
}

// TestManagersAreCollected drops a manager that had handles, owners and slots.
func TestManagersAreCollected(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := New[string]()
	manager, table := weak.Make(m), weak.Make(&m.shards[0])
	_, err := m.Handle("db")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.TryAcquire("lost", 1); err != nil {
		t.Fatal(err)
	}
	o := NewOwner(ctx)
	if _, err := m.TryAcquireFor(o, "db", 1, 1); err != nil {
		t.Fatal(err)
	}
	o.Close() // an owner that goes on living keeps no manager once it has ended
	m = nil
	collected(t, "the manager", func() bool { return manager.Value() == nil && table.Value() == nil })
	runtime.KeepAlive(o)
}

// TestOwnersAreCollected ends owners whose context lives on.
func TestOwnersAreCollected(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	closed, through := NewOwner(ctx), NewOwner(ctx)
	one, other := weak.Make(closed), weak.Make(through)
	closed.Close()
	if err := through.Do(func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	closed, through = nil, nil
	collected(t, "owners that have ended", func() bool { return one.Value() == nil && other.Value() == nil })
}
