package semaphore_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper/semaphore"
)

// hold acquires n slots of "db" for the owner, one by one.
func hold(t *testing.T, m *semaphore.Manager[string], o *semaphore.Owner, n int) (slots []*semaphore.Slot) {
	t.Helper()
	for range n {
		s, err := m.TryAcquireFor(o, "db", 1, n)
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, s)
	}
	return slots
}

// checkEnded checks that the owner has ended: nothing is held, it cannot acquire, and a Release of
// its slots says why it fails.
func checkEnded(t *testing.T, m *semaphore.Manager[string], o *semaphore.Owner, held []*semaphore.Slot) {
	t.Helper()
	nothingHeld(t, m)
	if _, err := m.TryAcquireFor(o, "db", 1, 100); !errors.Is(err, semaphore.ErrOwnerEnded) {
		t.Errorf("acquire for an owner that ended: %v", err)
	}
	for _, s := range held {
		if err := s.Release(); !errors.Is(err, semaphore.ErrNotHeld) || !errors.Is(err, semaphore.ErrOwnerEnded) {
			t.Errorf("release after the owner's end: %v", err)
		}
	}
	nothingHeld(t, m)
}

func TestCloseFreesAllSlots(t *testing.T) {
	m := semaphore.New[string]()
	o := semaphore.NewOwner(t.Context())
	slots := hold(t, m, o, 4)
	release(t, slots[1])
	o.Close()
	if err := slots[1].Release(); !errors.Is(err, semaphore.ErrNotHeld) || errors.Is(err, semaphore.ErrOwnerEnded) {
		t.Errorf("second release of a slot that was released before the end: %v", err)
	}
	checkEnded(t, m, o, []*semaphore.Slot{slots[0], slots[2], slots[3]})
	o.Close()
}

func TestEndOfContextFreesAllSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := semaphore.New[string]()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		o := semaphore.NewOwner(ctx)
		slots := hold(t, m, o, 3)
		time.Sleep(time.Minute - time.Nanosecond)
		synctest.Wait()
		if held := m.Held("db"); held != 3 {
			t.Fatalf("%d held before the end of the context, want 3", held)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		checkEnded(t, m, o, slots)
	})
}

// TestDoneContextRefusesAtOnce: an owner whose context is done cannot acquire, even before the
// function of AfterFunc has run.
func TestDoneContextRefusesAtOnce(t *testing.T) {
	m := semaphore.New[string]()
	ctx, cancel := context.WithCancel(t.Context())
	o := semaphore.NewOwner(ctx)
	cancel()
	if _, err := m.TryAcquireFor(o, "db", 1, 1); !errors.Is(err, semaphore.ErrOwnerEnded) {
		t.Errorf("acquire after the end of the context: %v", err)
	}
	if err := o.Do(func() error { t.Error("called"); return nil }); !errors.Is(err, semaphore.ErrOwnerEnded) {
		t.Errorf("do after the end of the context: %v", err)
	}
	checkEnded(t, m, semaphore.NewOwner(ctx), nil)
}

func TestDoEndsTheOwner(t *testing.T) {
	failed := errors.New("failed")
	for name, leave := range map[string]func() error{
		"return": func() error { return nil },
		"error":  func() error { return failed },
		"panic":  func() error { panic("oh") },
		"exit":   func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			m := semaphore.New[string]()
			o := semaphore.NewOwner(t.Context())
			var slots []*semaphore.Slot
			var all sync.WaitGroup
			all.Go(func() {
				defer func() { _ = recover() }()
				err := o.Do(func() error {
					slots = hold(t, m, o, 2)
					return leave()
				})
				if name == "error" && err != failed || name == "return" && err != nil {
					t.Errorf("do: %v", err)
				}
			})
			all.Wait()
			checkEnded(t, m, o, slots)
		})
	}
}

// TestOwnerOfSeveralManagers acquires slots of two managers, by key and by handle.
func TestOwnerOfSeveralManagers(t *testing.T) {
	names, numbers := semaphore.New[string](), semaphore.New[int]()
	handle, err := names.Handle("by handle")
	if err != nil {
		t.Fatal(err)
	}
	o := semaphore.NewOwner(t.Context())
	for i := range 100 {
		if _, err := numbers.TryAcquireFor(o, i%7, 2, 100); err != nil {
			t.Fatal(err)
		}
		if s, err := handle.TryAcquireFor(o, 1, 100); err != nil || s.Ordinal() != i+1 {
			t.Fatal(s, err)
		}
	}
	hold(t, names, o, 1)
	o.Close()
	checkEnded(t, names, o, nil)
	for key, n := range numbers.All() {
		t.Errorf("%d of %d held", n, key)
	}
	if handle.Held() != 0 {
		t.Errorf("%d held by handle", handle.Held())
	}
}
