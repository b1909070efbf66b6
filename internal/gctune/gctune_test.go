package gctune

import (
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestGrowthOfHeapBySize(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 1600}, {1 << 20, 1600}, {4 << 20, 1600}, {32 << 20, 200}, {64 << 20, 100}, {10 << 30, 100}} {
		if got := percent(c.live); got != c.want {
			t.Errorf("with %d bytes in use the heap may grow by %d%%, want %d%%", c.live, got, c.want)
		}
	}
	if live := liveHeap(); live > 1<<40 {
		t.Errorf("%d bytes in use", live)
	}
}

// A server that has just begun, or keeps next to nothing, is collected after some 64 MiB
// as well: it must fit into a small container.
func TestSmallHeapIsCollectedAt64MiB(t *testing.T) {
	for _, live := range []uint64{0, 1 << 20} {
		before := debug.SetGCPercent(percent(live))
		sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(sample)
		debug.SetGCPercent(before)
		if goal := sample[0].Value.Uint64(); goal > heapRoom+32*liveHeap() {
			t.Errorf("as if %d bytes were in use, it is collected when the heap has %d bytes", live, goal)
		}
	}
}
