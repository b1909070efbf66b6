package server

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// heapRoom is how much a tuned process may allocate between two collections,
// however little it keeps.
const heapRoom = 64 << 20

// mostPercent is by how much any heap may grow. Go takes no heap for smaller than
// 4 MiB, so this makes heapRoom of one that is next to empty.
const mostPercent = heapRoom / (4 << 20) * 100

// TuneCollector has Go's garbage collector run after 64 MiB of new memory, or when
// the heap has doubled, whichever is later. It is for processes that do nothing but
// serve: a server with few locks keeps so little that the collector, which by itself
// waits for 4 MiB, costs it more than its locks. It does nothing if the environment
// sets GOGC. Calling it again changes nothing.
func TuneCollector() { tuned.Do(tune) }

var tuned sync.Once

func tune() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectorPercent(liveHeap()))
		afterCollection()
	}
}

// afterCollection adjusts the collector after each collection: an object that
// nobody has is finalized then.
func afterCollection() {
	type witness struct{ _ [16]byte }
	runtime.SetFinalizer(new(witness), func(*witness) {
		debug.SetGCPercent(collectorPercent(liveHeap()))
		afterCollection()
	})
}

// collectorPercent is by how much the heap may grow.
func collectorPercent(live uint64) int {
	return int(max(100, min(heapRoom*100/max(live, 1), mostPercent)))
}

// liveHeap is what the latest collection found in use.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
