package semaphore

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// What is used leaves nothing behind: no key, no table, no goroutine. In full, that
// is with ten million keys, these tests run without the race detector, which
// makes each of them twenty times as slow and adds to the memory that is measured:
//
//	go test ./semaphore -run Memory -v
//
// With -race they have fewer keys.

// many is a number of keys or slots, or a fiftieth of it under the race detector.
func many(n int) int {
	if underRaceDetector {
		return n / 50
	}
	return n
}

// before is what the process has before a test begins.
type before struct{ heap, goroutines int }

func lookBefore() before { return before{heap(), runtime.NumGoroutine()} }

func heap() int {
	// What has a cleanup goes in the second round.
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// idleMemory is as much as a manager may have while no slot is in use: for each
// shard its cells, eight times as many as entries at most, and for each idle entry
// a cache line and 32 bytes for the text of its key. The rest is for what the test
// and the runtime have grown by meanwhile.
func idleMemory(m *Manager[string]) int {
	return len(m.shards)*(64+8*8*idleKeys+idleKeys*(64+32)) + 256<<10
}

// nothingLeft looks at a manager without a slot in use and without handles.
func (b before) nothingLeft(t *testing.T, m *Manager[string]) {
	t.Helper()
	m.Check(t)
	entries, cells, pinned := footprint(m)
	if most := len(m.shards) * idleKeys; entries > most || pinned > 0 {
		t.Errorf("%d entries are left, at most %d may be; %d are pinned", entries, most, pinned)
	}
	if most := 8*entries + len(m.shards)*smallest; cells > most {
		t.Errorf("%d cells are left for %d entries, at most %d may be", cells, entries, most)
	}
	for range m.All() {
		t.Fatal("a key is in use")
	}
	grown := heap() - b.heap
	runtime.KeepAlive(m)
	t.Logf("%d entries and %d cells are left, the heap has grown by %d kB", entries, cells, grown>>10)
	if most := idleMemory(m); grown > most && !underRaceDetector {
		t.Errorf("the heap has grown by %d bytes, at most %d are for idle keys", grown, most)
	}
	if n := runtime.NumGoroutine(); n > b.goroutines {
		t.Errorf("%d goroutines, and %d at the beginning", n, b.goroutines)
	}
}

// footprint counts the entries and cells of all shards, and entries with handles.
func footprint(m *Manager[string]) (entries, cells, pinned int) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		all := *s.cells.Load()
		entries += int(s.size.Load())
		cells += len(all)
		for c := range all {
			if e := all[c].Load(); e != nil && e.pins > 0 {
				pinned++
			}
		}
		s.mu.Unlock()
	}
	return entries, cells, pinned
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

func TestMemoryOfKeysOverTime(t *testing.T) {
	b := lookBefore()
	m := New[string]()
	for i := range many(10_000_000) {
		mustFree(t, mustTake(t, m, key(i)))
	}
	b.nothingLeft(t, m)
}

// A second time, and by the end of an owner, they leave no more than the first time.
func TestMemoryOfKeysAtOnce(t *testing.T) {
	n := many(100_000)
	slots := make([]*Slot, n)
	b := lookBefore()
	m := New[string]()
	for round := range 2 {
		for i := range slots {
			slots[i] = mustTake(t, m, key(round*n+i))
		}
		m.Check(t)
		if entries, _, _ := footprint(m); entries < n {
			t.Fatalf("%d entries for %d keys in use", entries, n)
		}
		for i := range slots {
			mustFree(t, slots[i])
			slots[i] = nil
		}
		b.nothingLeft(t, m)
	}
	o := NewOwner(context.Background())
	for i := range n {
		if _, err := m.TryAcquireFor(o, key(i), 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	o.Close()
	b.nothingLeft(t, m)
	runtime.KeepAlive(slots)
}

// Keys whose handles nobody has any more go, with the handles of before still used
// or not, and whether the handle or its slot was dropped last.
func TestMemoryOfHandles(t *testing.T) {
	for name, atOnce := range map[string]int{"over time": 1, "at once": many(100_000)} {
		t.Run(name, func(t *testing.T) {
			b := lookBefore()
			m := New[string]()
			for from := 0; from < many(1_000_000); from += atOnce {
				handles := make([]*Handle[string], atOnce)
				for i := range handles {
					handles[i] = usedHandle(t, m, key(from+i))
				}
			}
			waitForCleanups(t, m)
			b.nothingLeft(t, m)
		})
	}
}

func usedHandle(t *testing.T, m *Manager[string], key string) *Handle[string] {
	t.Helper()
	h, err := m.Handle(key)
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.TryAcquire(1)
	if err != nil {
		t.Fatal(err)
	}
	mustFree(t, s)
	return h
}

// waitForCleanups collects garbage until no entry is pinned by a handle.
func waitForCleanups(t *testing.T, m *Manager[string]) {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; {
		runtime.GC()
		if _, _, pinned := footprint(m); pinned == 0 {
			return
		}
	}
	_, _, pinned := footprint(m)
	t.Fatalf("nobody has a handle any more, and %d entries are still pinned", pinned)
}

// A slot keeps its key though its handle is dropped, and the key goes with it.
func TestMemoryOfASlotWithoutItsHandle(t *testing.T) {
	n := many(100_000)
	slots := make([]*Slot, n)
	b := lookBefore()
	m := New[string]()
	for i := range slots {
		h, err := m.Handle(key(i))
		if err != nil {
			t.Fatal(err)
		}
		if slots[i], err = h.TryAcquire(1); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.GC()
	for i := range slots {
		if _, err := m.TryAcquire(key(i), 1); err == nil {
			t.Fatalf("%s is in use and was granted again", key(i))
		}
		mustFree(t, slots[i])
	}
	clear(slots)
	waitForCleanups(t, m)
	b.nothingLeft(t, m)
	runtime.KeepAlive(slots)
}

// An owner's list stays short, however many slots it has over time.
func TestMemoryOfAnOwner(t *testing.T) {
	const atOnce = 10
	b := lookBefore()
	m, o := New[string](), NewOwner(context.Background())
	longest := 0
	var ring [atOnce]*Slot
	for i := range many(1_000_000) {
		if old := ring[i%atOnce]; old != nil {
			mustFree(t, old)
		}
		s, err := m.TryAcquireFor(o, key(i), 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		ring[i%atOnce] = s
		longest = max(longest, cap(o.slots))
	}
	if longest > 2*atOnce {
		t.Errorf("a list for %d slots, with %d at once", longest, atOnce)
	}
	for _, s := range ring {
		mustFree(t, s)
	}
	b.nothingLeft(t, m)
	runtime.KeepAlive(o)
}

// A list that was long is short again after as many slots.
func TestMemoryOfAnOwnerThatHadMany(t *testing.T) {
	m, o := New[string](), NewOwner(context.Background())
	take := func(i int) *Slot {
		s, err := m.TryAcquireFor(o, key(i), 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	n := many(100_000)
	slots := make([]*Slot, n)
	for i := range slots {
		slots[i] = take(i)
	}
	if longest := cap(o.slots); longest > 2*n {
		t.Errorf("a list for %d slots, with %d at once", longest, n)
	}
	for _, s := range slots {
		mustFree(t, s)
	}
	for i := range 2 * n {
		mustFree(t, take(i))
	}
	if cap(o.slots) > 4 {
		t.Errorf("a list for %d slots, with one at once", cap(o.slots))
	}
}

// A slot that stays in its function is on its stack, if TryAcquire and its like are
// short enough to be inlined, and who is refused gets nothing.
func TestMemoryOfOneSlot(t *testing.T) {
	if underRaceDetector {
		t.Skip("the race detector has other limits for what is inlined")
	}
	m, o := New[string](), NewOwner(context.Background())
	h, err := m.Handle("by handle")
	if err != nil {
		t.Fatal(err)
	}
	mustTake(t, m, "full")
	full, err := m.Handle("full")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		want float64
		do   func()
	}{
		"by key":                {0, func() { s, _ := m.TryAcquire("db", 1); s.Release() }},
		"several by key":        {0, func() { s, _ := m.TryAcquireN("db", 2, 2); s.Release() }},
		"by handle":             {0, func() { s, _ := h.TryAcquire(1); s.Release() }},
		"several by handle":     {0, func() { s, _ := h.TryAcquireN(2, 2); s.Release() }},
		"for an owner":          {1, func() { s, _ := m.TryAcquireFor(o, "db", 1, 1); s.Release() }},
		"refused by key":        {0, func() { s, _ := m.TryAcquire("full", 1); s.Release() }},
		"refused by handle":     {0, func() { s, _ := full.TryAcquire(1); s.Release() }},
		"refused to an owner":   {0, func() { s, _ := m.TryAcquireFor(o, "full", 1, 1); s.Release() }},
		"refused by its handle": {0, func() { s, _ := full.TryAcquireFor(o, 1, 1); s.Release() }},
	} {
		if got := testing.AllocsPerRun(1000, c.do); got != c.want {
			t.Errorf("%s: %v allocations, want %v", name, got, c.want)
		}
	}
}
