package table

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestIDMap: an idMap has what a Go map has, in the order of the ids, however the ids come and go.
func TestIDMap(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 0))
	var lowest, next uint64
	kinds := map[string]func() uint64{
		"rising, the oldest leaves": func() uint64 {
			if next-lowest > 300 || next > lowest && random.IntN(2) == 0 {
				lowest++
				return lowest - 1
			}
			next++
			return next - 1
		},
		"few":    func() uint64 { return random.Uint64N(3) },
		"dense":  func() uint64 { return 1<<63 + random.Uint64N(500) },
		"sparse": func() uint64 { return ^(random.Uint64N(40) * 1000) },
	}
	for name, id := range kinds { // order does not matter: each by itself
		t.Run(name, func(t *testing.T) {
			var m idMap[int]
			want := make(map[uint64]int)
			for i := range 20_000 {
				k := id()
				if _, there := want[k]; there && random.IntN(3) > 0 {
					m.remove(k)
					delete(want, k)
				} else {
					m.put(k, i)
					want[k] = i
				}
				k = id()
				v, there := want[k]
				if got, found := m.get(k); got != v || found != there || m.length != len(want) {
					t.Fatalf("step %d: id %d has %d, %t, want %d, %t; %d ids, want %d", i, k, got, found, v, there, m.length,
						len(want))
				}
				if i%100 == 0 {
					m.check(t, want)
				}
			}
		})
	}
}

func (m *idMap[V]) check(t *testing.T, want map[uint64]V) {
	t.Helper()
	var ids []uint64
	for id := range m.all() {
		if ids = append(ids, id); len(ids) > len(want) {
			break
		}
	}
	expected := make([]uint64, 0, len(want))
	for id := range want { // order does not matter: sorted below
		expected = append(expected, id)
	}
	slices.Sort(expected)
	if !slices.Equal(ids, expected) {
		t.Fatalf("it has the ids %d, want %d", ids, expected)
	}
	for _, p := range m.pages { // order does not matter: any failure is one
		room, n := cap(p.values), len(p.values)
		if n == 0 && p != m.empty || m.pages[p.number] != p || n > 0 && room > idsOfPage/4 && n <= room/4 {
			t.Fatalf("page %d has room for %d values, of which it has %d", p.number, room, n)
		}
	}
}
