package semaphore

import (
	"context"
	"runtime"
	"strconv"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// baseline is the memory and the number of goroutines of the process before a test begins.
type baseline struct{ heap, goroutines int }

func measure() baseline { return baseline{heap(), runtime.NumGoroutine()} }

func heap() int {
	// The second collection frees what the first one ran cleanups for.
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// idleMemory is the most memory that a manager may have while no slot is held: for each shard the
// cells, at most eight times as many as entries, and for each idle entry a cache line and 32 bytes
// for the text of its key. The rest is for what the test and the runtime allocate meanwhile.
func idleMemory(m *Manager[string]) int {
	return len(m.shards)*(64+8*8*maxIdle+maxIdle*(64+32)) + 256<<10
}

// checkIdle checks that a manager without held slots and handles has returned to the baseline.
func (b baseline) checkIdle(t *testing.T, m *Manager[string]) {
	t.Helper()
	m.Check(t) // also the number of cells
	if n, most := m.entries(), len(m.shards)*maxIdle; n > most {
		t.Errorf("%d entries remain, at most %d may", n, most)
	}
	for key := range m.All() {
		t.Fatalf("%s is in use", key)
	}
	grown := heap() - b.heap
	runtime.KeepAlive(m)
	t.Logf("%d entries remain, the heap has grown by %d kB", m.entries(), grown>>10)
	if most := idleMemory(m); grown > most {
		t.Errorf("the heap has grown by %d bytes, at most %d are for idle keys", grown, most)
	}
	if n := runtime.NumGoroutine(); n > b.goroutines {
		t.Errorf("%d goroutines, and %d at the beginning", n, b.goroutines)
	}
}

func key(i int) string { return "app-" + strconv.Itoa(i) + "-production" }

func mustTake(t *testing.T, m *Manager[string], key string) *Slot {
	t.Helper()
	s, err := m.TryAcquire(key, 1)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustFree(t *testing.T, s *Slot) {
	t.Helper()
	if err := s.Release(); err != nil {
		t.Fatal(err)
	}
}

// TestMemoryOfKeysOverTime uses many keys, one after the other; with -long ten million.
func TestMemoryOfKeysOverTime(t *testing.T) {
	b := measure()
	m := New[string]()
	for i := range testmode.Pick(200_000, 10_000_000) {
		mustFree(t, mustTake(t, m, key(i)))
	}
	b.checkIdle(t, m)
}

// TestMemoryOfKeysAtOnce holds slots of many keys at once, in two rounds, and then for an owner
// that ends.
func TestMemoryOfKeysAtOnce(t *testing.T) {
	n := testmode.Pick(20_000, 100_000)
	slots := make([]*Slot, n)
	b := measure()
	m := New[string]()
	for round := range 2 {
		for i := range slots {
			slots[i] = mustTake(t, m, key(round*n+i))
		}
		m.Check(t)
		if entries := m.entries(); entries < n {
			t.Fatalf("%d entries for %d keys in use", entries, n)
		}
		for i := range slots {
			mustFree(t, slots[i])
			slots[i] = nil
		}
		b.checkIdle(t, m)
	}
	o := NewOwner(context.Background())
	for i := range n {
		if _, err := m.TryAcquireFor(o, key(i), 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	o.Close()
	b.checkIdle(t, m)
	runtime.KeepAlive(slots)
}
