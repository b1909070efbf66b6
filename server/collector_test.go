package server

import "testing"

func TestCollectorPercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 10_000}, {1 << 20, 6400}, {32 << 20, 200}, {64 << 20, 100}, {10 << 30, 100}} {
		if got := collectorPercent(c.live); got != c.want {
			t.Errorf("with %d bytes in use the heap may grow by %d%%, want %d%%", c.live, got, c.want)
		}
	}
	if live := liveHeap(); live > 1<<40 {
		t.Errorf("%d bytes in use", live)
	}
}
