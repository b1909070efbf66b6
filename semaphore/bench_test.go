package semaphore_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	weighted "golang.org/x/sync/semaphore"

	"github.com/lockkeeper/lockkeeper/semaphore"
)

// load is one way to use keys. Every peer is measured with every load.
type load struct {
	goroutines int
	keys       []string
	limit      int
	full       bool // as many slots of each key as the limit are held all the time
}

func (l *load) String() string {
	name := fmt.Sprintf("goroutines=%d/keys=%d", l.goroutines, len(l.keys))
	if l.full {
		return "refused/" + name
	}
	return name
}

// pair acquires and releases one slot of a key, and reports whether it was granted.
type pair func(key string) bool

// peers are the ways to use this package, and what a program would use in its place. Each returns
// a function that makes the pair of one goroutine.
var peers = []struct {
	name    string
	prepare func(l *load) func() pair
}{
	{"by key", byKey},
	{"by handle", byHandle},
	{"for an owner", forOwner},
	{"counters in a sync.Map", counters},
	{"x_sync semaphores in a sync.Map", weightedSemaphores},
	{"mutexes in a sync.Map", mutexes},
	{"ref-counted mutexes", countedMutexes},
}

// newManager returns a manager, all of whose slots are held where the load wants it so.
func newManager(l *load) *semaphore.Manager[string] {
	m := semaphore.New[string]()
	if !l.full {
		return m
	}
	for _, k := range l.keys {
		if _, err := m.TryAcquireN(k, l.limit, l.limit); err != nil {
			panic(err)
		}
	}
	return m
}

func byKey(l *load) func() pair {
	m := newManager(l)
	return func() pair {
		return func(key string) bool {
			slot, err := m.TryAcquire(key, l.limit)
			return err == nil && slot.Release() == nil
		}
	}
}

func byHandle(l *load) func() pair {
	m, handles := newManager(l), map[string]*semaphore.Handle[string]{}
	for _, k := range l.keys {
		h, err := m.Handle(k)
		if err != nil {
			panic(err)
		}
		handles[k] = h
	}
	return func() pair {
		return func(key string) bool {
			slot, err := handles[key].TryAcquire(l.limit)
			return err == nil && slot.Release() == nil
		}
	}
}

func forOwner(l *load) func() pair {
	m := newManager(l)
	return func() pair {
		owner := semaphore.NewOwner(context.Background())
		return func(key string) bool {
			slot, err := m.TryAcquireFor(owner, key, 1, l.limit)
			return err == nil && slot.Release() == nil
		}
	}
}

// counters compares a count with the limit and adds by compare-and-swap. The keys stay forever.
func counters(l *load) func() pair {
	var all sync.Map
	for _, k := range l.keys {
		c := new(atomic.Int64)
		if l.full {
			c.Store(int64(l.limit))
		}
		all.Store(k, c)
	}
	return func() pair {
		return func(key string) bool {
			value, _ := all.Load(key)
			c := value.(*atomic.Int64)
			for {
				count := c.Load()
				if count >= int64(l.limit) {
					return false
				}
				if c.CompareAndSwap(count, count+1) {
					c.Add(-1)
					return true
				}
			}
		}
	}
}

// weightedSemaphores have a limit that cannot change. The keys stay forever.
func weightedSemaphores(l *load) func() pair {
	var all sync.Map
	for _, k := range l.keys {
		s := weighted.NewWeighted(int64(l.limit))
		if l.full {
			s.TryAcquire(int64(l.limit))
		}
		all.Store(k, s)
	}
	return func() pair {
		return func(key string) bool {
			value, _ := all.Load(key)
			s := value.(*weighted.Weighted)
			if !s.TryAcquire(1) {
				return false
			}
			s.Release(1)
			return true
		}
	}
}

// mutexes are locked where nothing is held, which waits, and tried otherwise. The keys stay forever.
func mutexes(l *load) func() pair {
	var all sync.Map
	for _, k := range l.keys {
		mu := new(sync.Mutex)
		if l.full {
			mu.Lock()
		}
		all.Store(k, mu)
	}
	return func() pair {
		return func(key string) bool {
			value, _ := all.Load(key)
			mu := value.(*sync.Mutex)
			if l.full {
				return mu.TryLock()
			}
			mu.Lock()
			defer mu.Unlock()
			return true
		}
	}
}

// countedMutexes are made for the first goroutine that wants a key, and freed with the last. They are
// locked where nothing is held, which waits, and tried otherwise.
func countedMutexes(l *load) func() pair {
	all := counted{entries: map[string]*countedMutex{}}
	if l.full {
		for _, k := range l.keys {
			all.enter(k).Lock()
		}
	}
	return func() pair {
		return func(key string) bool {
			mu := all.enter(key)
			defer all.leave(key, mu)
			if l.full {
				return mu.TryLock()
			}
			mu.Lock()
			defer mu.Unlock()
			return true
		}
	}
}

// counted is a map of mutexes that are in use.
type counted struct {
	mu      sync.Mutex
	entries map[string]*countedMutex
}

type countedMutex struct {
	sync.Mutex
	users int
}

func (c *counted) enter(key string) *countedMutex {
	c.mu.Lock()
	defer c.mu.Unlock()
	mu := c.entries[key]
	if mu == nil {
		mu = &countedMutex{}
		c.entries[key] = mu
	}
	mu.users++
	return mu
}

func (c *counted) leave(key string, mu *countedMutex) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mu.users--; mu.users == 0 {
		delete(c.entries, key)
	}
}

// run does n pairs with the goroutines of the load.
func (l *load) run(newPair func() pair, n int) (granted int64) {
	var got atomic.Int64
	var all sync.WaitGroup
	for g := range l.goroutines {
		all.Go(func() {
			do, at, mine := newPair(), g*len(l.keys)/l.goroutines, int64(0)
			for range n / l.goroutines {
				if do(l.keys[at]) {
					mine++
				}
				if at++; at == len(l.keys) {
					at = 0
				}
			}
			got.Add(mine)
		})
	}
	all.Wait()
	return got.Load()
}

// BenchmarkSlots acquires and releases a slot, or is refused, with this package and with its peers.
func BenchmarkSlots(b *testing.B) {
	var loads []*load
	for _, full := range []bool{false, true} {
		for _, keys := range []int{1, 1_000, 100_000} {
			for _, goroutines := range []int{1, runtime.GOMAXPROCS(0)} {
				l := &load{goroutines: goroutines, keys: make([]string, keys), limit: math.MaxInt, full: full}
				if full {
					l.limit = 1
				}
				for i := range l.keys {
					l.keys[i] = fmt.Sprintf("app-%d-production", i)
				}
				loads = append(loads, l)
			}
		}
	}
	loads = append(loads, &load{goroutines: 128, keys: []string{"app-0-production"}, limit: math.MaxInt})
	for _, l := range loads {
		for _, p := range peers {
			b.Run(l.String()+"/"+p.name, func(b *testing.B) {
				newPair := p.prepare(l)
				l.run(newPair, min(b.N, 2*len(l.keys))) // tables and caches are in their usual state
				b.ReportAllocs()
				b.ResetTimer()
				granted := l.run(newPair, b.N)
				b.ReportMetric(float64(granted)/float64(b.N), "granted/op")
			})
		}
	}
}
