package semaphore

import (
	"reflect"
	"sync"
	"testing"
)

// TestVetReportsCopies: a copy of a handle would outlive the pin of its key, and a copy of a slot
// could be released again. go vet reports copies of a struct that has a field with the methods of
// sync.Locker, by value.
func TestVetReportsCopies(t *testing.T) {
	locker := reflect.TypeFor[sync.Locker]()
	types := []reflect.Type{reflect.TypeFor[Slot](), reflect.TypeFor[Handle[string]](), reflect.TypeFor[Owner]()}
	for _, of := range types {
		found := false
		for i := range of.NumField() {
			if f := of.Field(i).Type; f.Kind() == reflect.Struct && reflect.PointerTo(f).Implements(locker) {
				found = true
			}
		}
		if !found {
			t.Errorf("go vet lets a %v be copied", of)
		}
	}
}

// TestReleaseOfCopyPanics releases a slot and its copy: the second Release panics, and the key
// stays usable.
func TestReleaseOfCopyPanics(t *testing.T) {
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
					t.Errorf("%s: no panic", name)
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
