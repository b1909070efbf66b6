package semaphore

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
)

// whenFreed is in the place of an entry: free does what a test wants to happen then.
type whenFreed func(n int)

func (do whenFreed) free(n int) { do(n) }

// closes closes an owner beside, and tells when it is through.
func closes(o *Owner) (through *atomic.Bool) {
	through = new(atomic.Bool)
	go func() {
		o.Close()
		through.Store(true)
	}()
	return through
}

// others lets all who can go on do so.
func others() {
	for range 1000 {
		runtime.Gosched()
	}
}

// ownerOf makes an owner that holds a slot of a key.
func ownerOf(t *testing.T, of whenFreed) (*Owner, *Slot) {
	t.Helper()
	o := NewOwner(context.Background())
	s, err := o.own(func() (grant, error) { return grant{of, 2, 2}, nil })
	if err != nil {
		t.Fatal(err)
	}
	return o, s
}

// Close does not return before what is being released is free.
func TestCloseWaitsForRelease(t *testing.T) {
	var o *Owner
	var through *atomic.Bool
	freed := 0
	o, s := ownerOf(t, func(n int) {
		through = closes(o)
		if others(); through.Load() {
			t.Error("Close returned while a slot was being freed")
		}
		freed += n
	})
	if err := s.Release(); err != nil {
		t.Fatal(err)
	}
	o.Close()
	if freed != 2 {
		t.Errorf("freed %d slots of 2", freed)
	}
}

// Close does not return before what another Close is freeing is free; whoever releases
// it then is told why it can't be.
func TestCloseWaitsForClose(t *testing.T) {
	var o *Owner
	var s *Slot
	freed := 0
	o, s = ownerOf(t, func(n int) {
		if err := s.Release(); !errors.Is(err, ErrNotHeld) || !errors.Is(err, ErrOwnerEnded) {
			t.Errorf("release of what the end is freeing: %v", err)
		}
		through := closes(o)
		if others(); through.Load() {
			t.Error("Close returned while another one was freeing a slot")
		}
		freed += n
	})
	o.Close()
	if err := s.Release(); !errors.Is(err, ErrNotHeld) || !errors.Is(err, ErrOwnerEnded) {
		t.Errorf("release of what the end has freed: %v", err)
	}
	o.Close()
	if freed != 2 {
		t.Errorf("freed %d slots of 2", freed)
	}
}

// An entry that is gone never counts again.
func TestGoneStaysGone(t *testing.T) {
	var e entry[int]
	e.count.Store(gone)
	for _, n := range []int{1, 2} {
		if ordinal, got := e.take(n, 5); got != left || ordinal != 0 {
			t.Errorf("take %d of an entry that is gone: %d, answer %d", n, ordinal, got)
		}
	}
	if e.count.Load() != gone {
		t.Errorf("count %d", e.count.Load())
	}
}

// Who releases a copy of a slot is told, and the key goes on as before.
func TestCopiedSlot(t *testing.T) {
	m := New[string]()
	h, err := m.Handle("by handle")
	if err != nil {
		t.Fatal(err)
	}
	for name, take := range map[string]func() (*Slot, error){
		"db":        func() (*Slot, error) { return m.TryAcquireN("db", 2, 2) },
		"by handle": func() (*Slot, error) { return h.TryAcquireN(2, 2) },
	} {
		s, err := take()
		if err != nil {
			t.Fatal(err)
		}
		copied := &Slot{grant: s.grant}
		mustFree(t, s)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: a copy was released, and nobody is told", name)
				}
			}()
			_ = copied.Release()
		}()
		if s, err = take(); err != nil || m.Held(name) != 2 {
			t.Fatalf("%s: afterwards: %v, %d held", name, err, m.Held(name))
		}
		mustFree(t, s)
	}
	m.Check(t)
}
