package canal

import (
	"runtime"
	"testing"
)

// newForTwoCores makes a manager as on a computer with two cores: with more of them
// there are more shards, and each keeps fewer keys.
func newForTwoCores() *Manager[int] {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	return New[int]()
}

// entries is how many a manager has.
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

// Keys leave with their last slot, and their memory is given back; refused attempts
// bring none.
func TestKeysLeave(t *testing.T) {
	m := newForTwoCores()
	for range 3 {
		slots := takeAll(t, m, 0, 50_000)
		if n := m.entries(); n < 50_000 || n > 50_000+idleKeys {
			t.Errorf("%d entries of 50000 keys in use", n)
		}
		freeAll(t, slots)
		m.Check(t) // not more cells than the entries need, too
		if n := m.entries(); n > idleKeys {
			t.Errorf("%d entries, and no key in use", n)
		}
	}
	for key := range 50_000 {
		if _, err := m.TryAcquire(key, 0); err == nil {
			t.Fatal("granted under a limit of 0")
		}
	}
	if n := m.entries(); n > idleKeys {
		t.Errorf("%d entries after refusals, and no key in use", n)
	}
}

// Few keys don't come and go with each use.
func TestFewKeysStay(t *testing.T) {
	m := newForTwoCores()
	for range 3 {
		freeAll(t, takeAll(t, m, 0, 100))
		if n := m.entries(); n != 100 {
			t.Errorf("%d entries after use of 100 keys, want all to stay", n)
		}
	}
}

// Keys that are used again and again take the place of those of long ago.
func TestIdleKeysMakeRoom(t *testing.T) {
	m := newForTwoCores()
	freeAll(t, takeAll(t, m, 0, 20_000))
	for range 100 {
		freeAll(t, takeAll(t, m, -100, 0))
	}
	for key := -100; key < 0; key++ {
		if hash, home := m.find(key); home.look(hash, key) == nil {
			t.Errorf("key %d, of those used all the time, has not stayed", key)
		}
	}
	m.Check(t)
}

// makeRoom finds the idle keys wherever in the table they are.
func TestRoomIsMadeEverywhere(t *testing.T) {
	for at := range uint64(64) {
		var s shard[int]
		s.init(8)
		for key := range 8 { // 8 of 16 cells, in one piece from at
			e, _, _ := s.enter(at, key, 1, 1)
			e.free(1)
		}
		stayed := false
		for range 20 {
			e, _, _ := s.enter(at+32, 8, 1, 1)
			e.free(1)
			stayed = stayed || e.count.Load() != gone
		}
		s.check(t)
		if !stayed {
			t.Errorf("with idle keys from cell %d on, a new one never stays", at%16)
		}
	}
}

// An idle key takes some memory, and one that is gone none, also when there have been
// very many keys before.
func TestMemoryOfKeys(t *testing.T) {
	m := newForTwoCores()
	before := heap()
	for _, keys := range []int{idleKeys / 2, 100_000} {
		freeAll(t, takeAll(t, m, 0, keys))
		if n, stay := heap()-before, m.entries(); n > int64(150*stay) {
			t.Errorf("%d keys came and went, and %d stayed: %d bytes for each of these", keys, stay, n/int64(stay))
		}
	}
	runtime.KeepAlive(m)
}

// heap is how much memory is in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
