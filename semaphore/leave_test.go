package semaphore

import (
	"runtime"
	"testing"
)

// newForTwoCores makes a manager as on a computer with two cores: with more of them
// there are more shards.
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

// allIdle is how many keys may stay while they are idle.
func allIdle(m *Manager[int]) int { return len(m.shards) * idleKeys }

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
		if n := m.entries(); n < 50_000 || n > 50_000+allIdle(m) {
			t.Errorf("%d entries of 50000 keys in use", n)
		}
		freeAll(t, slots)
		m.Check(t) // not more cells than the entries need, too
		if n := m.entries(); n > allIdle(m) {
			t.Errorf("%d entries, and no key in use", n)
		}
	}
	for key := range 50_000 {
		if _, err := m.TryAcquire(key, 0); err == nil {
			t.Fatal("granted under a limit of 0")
		}
	}
	if n := m.entries(); n > allIdle(m) {
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
	for range 1000 {
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
		for range 20 * 16 { // it looks at one insert in 16
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
