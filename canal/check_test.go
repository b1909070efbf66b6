package canal

import "testing"

// Check walks every invariant that holds while nobody is inside a method of m.
func (m *Manager[K]) Check(t *testing.T) {
	t.Helper()
	keys := make(map[K]bool)
	for i := range m.shards {
		s := &m.shards[i]
		entries, idle := 0, 0
		cells := *s.cells.Load()
		for c := range cells {
			e := cells[c].Load()
			if e == nil {
				continue
			}
			entries++
			if keys[e.key] {
				t.Errorf("%v has two entries", e.key)
			}
			keys[e.key] = true
			count := e.count.Load()
			if count < 0 || e.pins < 0 {
				t.Errorf("%v: count %d, %d pins", e.key, count, e.pins)
			}
			if count == 0 && e.pins == 0 {
				idle++
			}
			if hash, home := m.find(e.key); hash != e.hash || home != s || e.home != s || s.look(hash, e.key) != e {
				t.Errorf("%v is not found where it is", e.key)
			}
		}
		if size := int(s.size.Load()); size != entries || 2*entries > len(cells) {
			t.Errorf("shard %d: size %d, %d entries, %d cells", i, size, entries, len(cells))
		}
		if idle > int(s.keep) {
			t.Errorf("shard %d: %d idle entries, at most %d may stay", i, idle, s.keep)
		}
	}
}
