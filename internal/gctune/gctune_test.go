package gctune

import (
	"runtime"
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
}

// metric reads a number of the runtime's.
func metric(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// What the latest collection found in use is known but for the stacks and globals, at any growth.
func TestLiveHeap(t *testing.T) {
	keep := make([]byte, 32<<20)
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	for _, growth := range []int{100, 400, 1600} {
		debug.SetGCPercent(growth)
		runtime.GC()
		least := metric("/gc/heap/live:bytes")
		most := least + metric("/gc/scan/stack:bytes") + metric("/gc/scan/globals:bytes") + 1<<20
		if live := liveHeap(growth); live+1<<16 < least || live > most {
			t.Errorf("with a growth of %d%% %d bytes are in use, want %d to %d", growth, live, least, most)
		}
	}
	runtime.KeepAlive(keep)
}

// A server that has just begun, or keeps next to nothing, is collected after some 64 MiB
// as well: it must fit into a small container.
func TestSmallHeapIsCollectedAt64MiB(t *testing.T) {
	for _, live := range []uint64{0, 1 << 20} {
		before := debug.SetGCPercent(percent(live))
		goal := metric("/gc/heap/goal:bytes")
		debug.SetGCPercent(before)
		if goal > heapRoom+32*metric("/gc/heap/live:bytes") {
			t.Errorf("as if %d bytes were in use, it is collected when the heap has %d bytes", live, goal)
		}
	}
}
