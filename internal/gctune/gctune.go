// Package gctune tunes the garbage collector of processes that only serve.
package gctune

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
)

// heapRoom is what a tuned process may allocate at least between two collections.
const heapRoom = 64 << 20

// maxPercent is the growth of an almost empty heap to heapRoom: Go counts no heap as smaller than
// 4 MiB.
const maxPercent = heapRoom / (4 << 20) * 100

// Tune makes the collector run after 64 MiB of new memory, or when the heap has doubled, whichever
// is later. By default it runs after 4 MiB, which costs a server of few locks more than its locks do.
// Tune does nothing if the environment sets GOGC. A second call has no effect.
func Tune() { tuned.Do(tune) }

var tuned sync.Once

func tune() {
	if os.Getenv("GOGC") == "" {
		adjust(defaultPercent)
	}
}

// defaultPercent is the growth that Go begins with.
const defaultPercent = 100

// adjust sets the growth now and after each collection, by the finalizer of an object without
// references. before is the growth until now.
func adjust(before int) {
	now := percent(liveHeap(before))
	debug.SetGCPercent(now)
	type witness struct{ _ [16]byte }
	runtime.SetFinalizer(new(witness), func(*witness) { adjust(now) })
}

// percent returns the growth, in percent, for a heap with live bytes in use.
func percent(live uint64) int {
	return int(max(100, min(heapRoom*100/max(live, 1), maxPercent)))
}

// liveHeap returns the bytes that the latest collection found in use, or a little more, since the
// next one begins at
//
//	live + (live + stacks + globals) * percent/100
//
// Package runtime/metrics knows them exactly, but sorts its table when a program starts.
func liveHeap(percent int) uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NextGC * 100 / uint64(100+percent)
}
