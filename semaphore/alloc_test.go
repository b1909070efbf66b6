package semaphore_test

import (
	"errors"
	"testing"

	"github.com/lockkeeper/lockkeeper/semaphore"
)

// How callers use a slot that stays in their function. Each is a function of its own,
// as it is the compiler that decides where a slot is.

func deferred(m *semaphore.Manager[string]) error {
	slot, err := m.TryAcquire("db", 3)
	if errors.Is(err, semaphore.ErrFull) {
		return err
	}
	if err != nil {
		return err
	}
	defer slot.Release()
	return nil
}

func released(m *semaphore.Manager[string]) error {
	slot, err := m.TryAcquireN("db", 2, 3)
	if err != nil {
		return err
	}
	if slot.Ordinal() < slot.N() {
		return errors.New("wrong ordinal")
	}
	return slot.Release()
}

func inAStruct(m *semaphore.Manager[string]) error {
	slot, err := m.TryAcquire("db", 3)
	job := struct {
		name string
		slot *semaphore.Slot
	}{"job", slot}
	if err != nil {
		return err
	}
	return job.slot.Release()
}

func deferredByHandle(h *semaphore.Handle[string]) error {
	slot, err := h.TryAcquire(3)
	if err != nil {
		return err
	}
	defer slot.Release()
	return nil
}

// What doc.go says of allocations: a slot that stays in its function is none, and a
// refusal is none either.
func TestNothingIsAllocated(t *testing.T) {
	type pair struct{ host, path string }
	names, pairs, things := semaphore.New[string](), semaphore.New[pair](), semaphore.New[any]()
	h, err := names.Handle("by handle")
	if err != nil {
		t.Fatal(err)
	}
	var thing any = pair{"a", "b"}
	refused := func(_ *semaphore.Slot, err error) error {
		if !errors.Is(err, semaphore.ErrFull) {
			return errors.New("not refused")
		}
		return nil
	}
	acquire(t, names, "full", 1)
	if _, err := things.TryAcquire(thing, 1); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func() error{
		"deferred release":        func() error { return deferred(names) },
		"release":                 func() error { return released(names) },
		"in a struct":             func() error { return inAStruct(names) },
		"by handle":               func() error { return deferredByHandle(h) },
		"refused":                 func() error { return refused(names.TryAcquire("full", 1)) },
		"refused, unknown key":    func() error { return refused(names.TryAcquire("unknown", 0)) },
		"refused by handle":       func() error { return refused(h.TryAcquire(0)) },
		"refused, an interface":   func() error { return refused(things.TryAcquire(thing, 1)) },
		"refused, several fields": func() error { return refused(pairs.TryAcquire(pair{"a", "b"}, 0)) },
	} {
		n := testing.AllocsPerRun(100, func() {
			if err := do(); err != nil {
				t.Error(name, err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
