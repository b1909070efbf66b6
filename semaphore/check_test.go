package semaphore

import "testing"

// Check checks every invariant that holds while no method of m runs.
func (m *Manager[K]) Check(t *testing.T) {
	t.Helper()
	keys := make(map[K]bool)
	for i := range m.shards {
		s := &m.shards[i]
		for _, e := range s.check(t) {
			if keys[e.key] {
				t.Errorf("%v has two entries", e.key)
			}
			keys[e.key] = true
			if hash, home := m.find(e.key); hash != e.hash || home != s {
				t.Errorf("%v is in the wrong shard", e.key)
			}
		}
	}
}

// check checks the invariants of a shard and returns its entries. It locks the shard, because the
// cleanups of handles may run at any moment.
func (s *shard[K]) check(t *testing.T) (all []*entry[K]) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	cells := *s.cells.Load()
	idle := 0
	for c := range cells {
		e := cells[c].Load()
		if e == nil {
			continue
		}
		all = append(all, e)
		count := e.count.Load()
		if count < 0 || e.pins < 0 {
			t.Errorf("%v: count %d, %d pins", e.key, count, e.pins)
		}
		if count == 0 && e.pins == 0 {
			idle++
		}
		if e.shard != s || s.lookup(e.hash, e.key) != e {
			t.Errorf("lookup does not find %v", e.key)
		}
	}
	if size := int(s.size.Load()); size != len(all) || 2*size > len(cells) {
		t.Errorf("size %d, %d entries, %d cells", size, len(all), len(cells))
	}
	if len(cells) < minCells || len(cells) > minCells && len(all) < len(cells)/8 {
		t.Errorf("%d cells for %d entries", len(cells), len(all))
	}
	if idle > int(s.maxIdle) {
		t.Errorf("%d idle entries, at most %d may stay", idle, s.maxIdle)
	}
	return all
}

// OneShard returns a manager with one shard, which keeps idle entries up to maxIdle entries. Its
// keys collide, and come and go, far more often than in other managers.
func OneShard[K comparable](maxIdle int) *Manager[K] {
	m := New[K]()
	m.shards, m.shift = m.shards[:1], 64
	m.shards[0].init(maxIdle)
	return m
}
