package semaphore_test

import (
	"testing"

	"github.com/lockkeeper/lockkeeper/semaphore"
)

// TestAllWhileBodyChangesKeys releases each key that All yields and acquires another one, which All
// may yield, too.
func TestAllWhileBodyChangesKeys(t *testing.T) {
	const keys = 1000
	m := semaphore.New[int]()
	slots := make(map[int]*semaphore.Slot)
	add := func(key int) {
		s, err := m.TryAcquireN(key, 1+key%3, 3)
		if err != nil {
			t.Fatal(err)
		}
		slots[key] = s
	}
	for key := range keys {
		add(key)
	}
	yielded := make(map[int]bool)
	for key, n := range m.All() {
		if n != 1+key%3 || yielded[key] {
			t.Errorf("All yields %d of key %d; yielded before: %v", n, key, yielded[key])
		}
		yielded[key] = true
		release(t, slots[key])
		if m.Held(key) != 0 {
			t.Errorf("%d of key %d held after its release", m.Held(key), key)
		}
		if key < keys {
			add(keys + key)
		}
	}
	for key := range keys {
		if !yielded[key] {
			t.Errorf("All does not yield key %d", key)
		}
	}
	m.Check(t)
}

// TestAllStopsWithBreak breaks out of the loop: no lock stays behind.
func TestAllStopsWithBreak(t *testing.T) {
	m := semaphore.New[int]()
	for key := range 100 {
		if _, err := m.TryAcquire(key, 1); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		yielded := 0
		for range m.All() {
			yielded++
			break
		}
		if yielded != 1 {
			t.Errorf("All yields %d keys", yielded)
		}
	}
	for range m.All() {
		m.Held(1)
	}
}
