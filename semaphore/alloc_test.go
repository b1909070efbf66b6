package semaphore_test

import (
	"errors"
	"testing"

	"github.com/lockkeeper/lockkeeper/semaphore"
)

// Ways to use a slot that does not escape. Each is a function of its own, because the compiler
// decides per function where a slot is allocated.

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

// TestAllocations: a slot that does not escape is not allocated, a slot of an owner is, once, and a
// refusal allocates nothing.
func TestAllocations(t *testing.T) {
	type pair struct{ host, path string }
	names, pairs, things := semaphore.New[string](), semaphore.New[pair](), semaphore.New[any]()
	h, err := names.Handle("by handle")
	if err != nil {
		t.Fatal(err)
	}
	owner := semaphore.NewOwner(t.Context())
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
		"refused to an owner":     func() error { return refused(names.TryAcquireFor(owner, "full", 1, 1)) },
		"for an owner": func() error {
			slot, err := names.TryAcquireFor(owner, "db", 1, 3)
			if err != nil {
				return err
			}
			return slot.Release()
		},
	} {
		n := testing.AllocsPerRun(100, func() {
			if err := do(); err != nil {
				t.Error(name, err)
			}
		})
		if want := map[string]float64{"for an owner": 1}[name]; n != want {
			t.Errorf("%s: %v allocations, want %v", name, n, want)
		}
	}
}
