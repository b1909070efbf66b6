package semaphore

import (
	"context"
	"slices"
	"testing"
)

// listed makes an owner that has acquired n slots of its own keys.
func listed(t *testing.T, m *Manager[int], n int) (o *Owner, slots []*Slot) {
	t.Helper()
	o = NewOwner(context.Background())
	for key := range n {
		slots = append(slots, listOne(t, m, o, key))
	}
	return o, slots
}

func listOne(t *testing.T, m *Manager[int], o *Owner, key int) *Slot {
	t.Helper()
	s, err := m.TryAcquireFor(o, key, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// An owner that lives long, and holds a little at a time, remembers little.
func TestOwnerForgetsWhatIsReleased(t *testing.T) {
	m := New[int]()
	o, _ := listed(t, m, 10)
	for range 10_000 {
		if err := listOne(t, m, o, -1).Release(); err != nil {
			t.Fatal(err)
		}
		if n := cap(o.slots); n > 2*11 {
			t.Fatalf("room for %d slots where at most 11 were held at a time", n)
		}
	}
	o.Close()
	if o.slots != nil {
		t.Error("an owner that has ended remembers its slots")
	}
	for key, n := range m.All() {
		t.Errorf("%d of %d held", n, key)
	}
}

// An owner forgets neither what it holds nor what is being released.
func TestOwnerForgetsNothingElse(t *testing.T) {
	m := New[int]()
	o, slots := listed(t, m, 100)
	releasing := slots[50]
	releasing.state.Store(freeing)
	for range 1000 {
		if err := listOne(t, m, o, -1).Release(); err != nil {
			t.Fatal(err)
		}
	}
	for key, s := range slots {
		if !slices.Contains(o.slots, s) {
			t.Errorf("the slot of key %d is forgotten", key)
		}
	}
	releasing.state.Store(held)
	o.Close()
	for key, n := range m.All() {
		t.Errorf("%d of %d held", n, key)
	}
}

// The list is seldom looked through, though it is all but full of what is held.
func TestOwnerSeldomLooksThroughItsList(t *testing.T) {
	m := New[int]()
	o, _ := listed(t, m, 1000)
	walks, room := 0, &o.slots[0]
	for range 10_000 {
		if err := listOne(t, m, o, -1).Release(); err != nil {
			t.Fatal(err)
		}
		if &o.slots[0] != room { // a walk makes a new list
			walks, room = walks+1, &o.slots[0]
		}
	}
	if walks > 10 {
		t.Errorf("%d walks through 1000 slots in 10000 acquires", walks)
	}
	o.Close()
}
