package semaphore

import (
	"runtime"
	"testing"
)

// newForTwoCores makes a manager with the shards of a computer with two cores.
func newForTwoCores() *Manager[int] {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	return New[int]()
}

// entries returns the number of entries of a manager.
func (m *Manager[K]) entries() (n int) {
	for i := range m.shards {
		n += int(m.shards[i].size.Load())
	}
	return n
}

func takeAll(t *testing.T, m *Manager[int], from, to int) (slots []*Slot) {
	t.Helper()
	for key := from; key < to; key++ {
		s, err := m.TryAcquire(key, 1)
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, s)
	}
	return slots
}

func freeAll(t *testing.T, slots []*Slot) {
	t.Helper()
	for _, s := range slots {
		if err := s.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFewIdleKeysStay uses few keys: they are not inserted and evicted with each use.
func TestFewIdleKeysStay(t *testing.T) {
	m := newForTwoCores()
	for range 3 {
		freeAll(t, takeAll(t, m, 0, 100))
		if n := m.entries(); n != 100 {
			t.Errorf("%d entries after use of 100 keys, want 100", n)
		}
	}
}

// TestKeysInUseReplaceIdleKeys uses 100 keys again and again, after many others: they stay.
func TestKeysInUseReplaceIdleKeys(t *testing.T) {
	m := newForTwoCores()
	freeAll(t, takeAll(t, m, 0, 20_000))
	for range 1000 {
		freeAll(t, takeAll(t, m, -100, 0))
	}
	for key := -100; key < 0; key++ {
		if hash, home := m.find(key); home.lookup(hash, key) == nil {
			t.Errorf("key %d was used all the time and has not stayed", key)
		}
	}
	m.Check(t)
}

// TestEvictIdleReachesEveryCell has idle keys at every part of the table: a new key finds room.
func TestEvictIdleReachesEveryCell(t *testing.T) {
	for at := range uint64(64) {
		var s shard[int]
		s.init(8)
		for key := range 8 { // 8 consecutive cells of 16
			e, _, _ := s.takeSlow(at, key, 1, 1)
			e.free(1)
		}
		stayed := false
		for range 20 * 16 { // evictIdle works at every 16th insert
			e, _, _ := s.takeSlow(at+32, 8, 1, 1)
			e.free(1)
			stayed = stayed || e.count.Load() != removed
		}
		s.check(t)
		if !stayed {
			t.Errorf("with idle keys from cell %d on, a new key never stays", at%16)
		}
	}
}

// TestRefusedAcquireCreatesNoKey refuses acquires of many unknown keys.
func TestRefusedAcquireCreatesNoKey(t *testing.T) {
	m := New[int]()
	for key := range 10_000 {
		if _, err := m.TryAcquire(key, 0); err == nil {
			t.Fatal("granted with limit 0")
		}
	}
	if n := m.entries(); n > 0 {
		t.Errorf("%d entries after refusals", n)
	}
}
