package semaphore

import "testing"

// Check walks every invariant that holds while nobody is inside a method of m.
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
				t.Errorf("%v is not looked for where it is", e.key)
			}
		}
	}
}

// check walks the invariants of a shard, and returns its entries. It locks the shard,
// since handles that nobody has any more are cleaned up whenever it pleases the
// garbage collector.
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
		if e.home != s || s.look(e.hash, e.key) != e {
			t.Errorf("%v is not found where it is", e.key)
		}
	}
	if size := int(s.size.Load()); size != len(all) || 2*size > len(cells) {
		t.Errorf("size %d, %d entries, %d cells", size, len(all), len(cells))
	}
	if len(cells) < smallest || len(cells) > smallest && len(all) < len(cells)/8 {
		t.Errorf("%d cells for %d entries", len(cells), len(all))
	}
	if idle > int(s.keep) {
		t.Errorf("%d idle entries, at most %d may stay", idle, s.keep)
	}
	return all
}

// OneShard is a manager whose keys are all in one shard, which keeps as many of them
// while they are idle: there they meet, and come and go, as they seldom do in others.
func OneShard[K comparable](keep int) *Manager[K] {
	m := New[K]()
	m.shards, m.shift = m.shards[:1], 64
	m.shards[0].init(keep)
	return m
}
