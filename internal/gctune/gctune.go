// Package gctune tunes the garbage collector of processes that only serve.
package gctune

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
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
		debug.SetGCPercent(percent(liveHeap()))
		afterCollection()
	}
}

// afterCollection adjusts the collector after each collection, by the finalizer of an object without
// references.
func afterCollection() {
	type witness struct{ _ [16]byte }
	runtime.SetFinalizer(new(witness), func(*witness) {
		debug.SetGCPercent(percent(liveHeap()))
		afterCollection()
	})
}

// percent returns the growth, in percent, for a heap with live bytes in use.
func percent(live uint64) int {
	return int(max(100, min(heapRoom*100/max(live, 1), maxPercent)))
}

// liveHeap returns the bytes that the latest collection found in use.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
