package semaphore_test

import (
	"sync"
	"testing"

	"github.com/lockkeeper/lockkeeper/semaphore"
)

// TestWalkBesideReleases walks over a key that is acquired and released all the
// time: when it is told of, it is in use.
func TestWalkBesideReleases(t *testing.T) {
	m := semaphore.New[string]()
	stop := make(chan struct{})
	var wait sync.WaitGroup
	defer wait.Wait()
	defer close(stop)
	wait.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			slot, err := m.TryAcquire("db", 1)
			if err != nil {
				t.Error(err)
				return
			}
			if err := slot.Release(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 30_000 {
		for key, n := range m.All() {
			if n != 1 {
				t.Fatalf("%s has %d slots in use, says All", key, n)
			}
		}
	}
}

// TestWalkThatChangesThings releases each key that it is told of, and acquires another
// one in its place, which it may be told of, too.
func TestWalkThatChangesThings(t *testing.T) {
	const keys = 1000
	m := semaphore.New[int]()
	slots := make(map[int]*semaphore.Slot)
	bring := func(key int) {
		s, err := m.TryAcquireN(key, 1+key%3, 3)
		if err != nil {
			t.Fatal(err)
		}
		slots[key] = s
	}
	for key := range keys {
		bring(key)
	}
	told := make(map[int]bool)
	for key, n := range m.All() {
		if n != 1+key%3 || told[key] {
			t.Errorf("%d of key %d, says All, and told of it before: %v", n, key, told[key])
		}
		told[key] = true
		release(t, slots[key])
		if m.Held(key) != 0 {
			t.Errorf("%d of key %d held after its release", m.Held(key), key)
		}
		if key < keys {
			bring(keys + key)
		}
	}
	for key := range keys {
		if !told[key] {
			t.Errorf("key %d was not told of", key)
		}
	}
	m.Check(t)
}

// TestWalkThatEnds leaves the walk at once.
func TestWalkThatEnds(t *testing.T) {
	m := semaphore.New[int]()
	for key := range 100 {
		if _, err := m.TryAcquire(key, 1); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		told := 0
		for range m.All() {
			told++
			break
		}
		if told != 1 {
			t.Errorf("told of %d keys", told)
		}
	}
	for range m.All() { // no lock was left behind
		m.Held(1)
	}
}
