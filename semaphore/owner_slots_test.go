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

// TestOwnerListStaysShort acquires many slots, of which few are held at a time.
func TestOwnerListStaysShort(t *testing.T) {
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
		t.Error("an owner that has ended still has a list")
	}
	for key, n := range m.All() {
		t.Errorf("%d of %d held", n, key)
	}
}

// TestOwnerListKeepsHeldAndFreeing: neither held slots nor slots that are being released leave the
// list.
func TestOwnerListKeepsHeldAndFreeing(t *testing.T) {
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
			t.Errorf("the slot of key %d is not in the list", key)
		}
	}
	releasing.state.Store(held)
	o.Close()
	for key, n := range m.All() {
		t.Errorf("%d of %d held", n, key)
	}
}

// TestOwnerListIsSeldomCompacted holds many slots while others come and go.
func TestOwnerListIsSeldomCompacted(t *testing.T) {
	m := New[int]()
	o, _ := listed(t, m, 1000)
	compactions, room := 0, &o.slots[0]
	for range 10_000 {
		if err := listOne(t, m, o, -1).Release(); err != nil {
			t.Fatal(err)
		}
		if &o.slots[0] != room { // add has compacted the list
			compactions, room = compactions+1, &o.slots[0]
		}
	}
	if compactions > 10 {
		t.Errorf("%d compactions of 1000 slots in 10000 acquires", compactions)
	}
	o.Close()
}

// TestOwnerListShrinks releases many slots: after as many further slots the list is short again.
func TestOwnerListShrinks(t *testing.T) {
	const most = 1000
	m := New[int]()
	o, slots := listed(t, m, most)
	if room := cap(o.slots); room > 2*most {
		t.Errorf("room for %d slots where at most %d were held at a time", room, most)
	}
	for _, s := range slots {
		mustFree(t, s)
	}
	for range 2 * most {
		mustFree(t, listOne(t, m, o, -1))
	}
	if room := cap(o.slots); room > 4 {
		t.Errorf("room for %d slots where one is held at a time", room)
	}
}
