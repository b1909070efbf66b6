package semaphore_test

import (
	"sync"
	"sync/atomic"

	weighted "golang.org/x/sync/semaphore"
)

// What canal is compared with. Each peer has a loop of its own, so nothing is
// called through a pointer that the peer's users would not call so.

// field is what the peers of one comparison work on.
type field struct {
	keys  []string
	limit int
	waits bool // a mutex waits for the key; else it is tried, as all others are
	full  bool // as many slots of each key as the limit are in use, and stay so
}

// loop takes and frees a slot n times, of the keys to which the walk goes, and
// returns how many of them it got.
type loop func(w *walk, n int) (granted int)

// peer makes ready what a field needs.
type peer struct {
	name  string
	ready func(f *field) loop
}

// walk goes over all keys before it comes to one of them again, in steps that
// no prefetcher follows, and costs an addition.
type walk struct{ at, step, keys int }

func (w *walk) next() int {
	if w.at += w.step; w.at >= w.keys {
		w.at -= w.keys
	}
	return w.at
}

// The textbook's counter: compared with the limit and raised by
// compare-and-swap, lowered by addition, which needs no second try. The counters
// are there for ever and nobody has to look for them: the walk gives their index.
var casLoop = peer{"CAS loop", func(f *field) loop {
	counters := make([]atomic.Int64, len(f.keys))
	for i := range counters {
		if f.full {
			counters[i].Store(int64(f.limit))
		}
	}
	limit := int64(f.limit)
	return func(w *walk, n int) (granted int) {
		at := *w
		for range n {
			if c := &counters[at.next()]; raise(c, limit) {
				c.Add(-1)
				granted++
			}
		}
		*w = at
		return granted
	}
}}

func raise(c *atomic.Int64, limit int64) bool {
	for {
		count := c.Load()
		if count >= limit {
			return false
		}
		if c.CompareAndSwap(count, count+1) {
			return true
		}
	}
}

// The same where the counter has to be found by its key.
var casMap = peer{"CAS loop in sync.Map", func(f *field) loop {
	var all sync.Map
	for _, k := range f.keys {
		c := new(atomic.Int64)
		if f.full {
			c.Store(int64(f.limit))
		}
		all.Store(k, c)
	}
	limit := int64(f.limit)
	return func(w *walk, n int) (granted int) {
		at := *w
		for range n {
			c, _ := all.Load(f.keys[at.next()])
			if c := c.(*atomic.Int64); raise(c, limit) {
				c.Add(-1)
				granted++
			}
		}
		*w = at
		return granted
	}
}}

// One mutex for each key, made with its first use and kept for ever.
var mutexMap = peer{"sync.Map of mutexes", func(f *field) loop {
	var all sync.Map
	find := func(key string) *sync.Mutex {
		if mu, ok := all.Load(key); ok {
			return mu.(*sync.Mutex)
		}
		mu, _ := all.LoadOrStore(key, new(sync.Mutex))
		return mu.(*sync.Mutex)
	}
	for _, k := range f.keys {
		if mu := find(k); f.full {
			mu.Lock()
		}
	}
	return func(w *walk, n int) (granted int) {
		at := *w
		for range n {
			mu := find(f.keys[at.next()])
			if f.waits {
				mu.Lock()
			} else if !mu.TryLock() {
				continue
			}
			granted++
			mu.Unlock()
		}
		*w = at
		return granted
	}
}}

// countedMutexes has a mutex for each key that somebody has or wants, and none for others.
type countedMutexes struct {
	mu  sync.Mutex
	all map[string]*countedMutex
}

type countedMutex struct {
	sync.Mutex
	users int // guarded by countedMutexes.mu
}

func (c *countedMutexes) find(key string) *countedMutex {
	c.mu.Lock()
	defer c.mu.Unlock()
	mu := c.all[key]
	if mu == nil {
		mu = new(countedMutex)
		c.all[key] = mu
	}
	mu.users++
	return mu
}

func (c *countedMutexes) leave(key string, mu *countedMutex) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if mu.users--; mu.users == 0 {
		delete(c.all, key)
	}
}

var mutexCounted = peer{"ref-counted mutexes", func(f *field) loop {
	c := &countedMutexes{all: map[string]*countedMutex{}}
	for _, k := range f.keys {
		if f.full {
			c.find(k).Lock()
		}
	}
	return func(w *walk, n int) (granted int) {
		at := *w
		for range n {
			key := f.keys[at.next()]
			mu := c.find(key)
			if f.waits {
				mu.Lock()
			}
			if f.waits || mu.TryLock() {
				granted++
				mu.Unlock()
			}
			c.leave(key, mu)
		}
		*w = at
		return granted
	}
}}

// One semaphore of x/sync for each key, kept for ever. Its limit can't change.
var weightedMap = peer{"sync.Map of x/sync", func(f *field) loop {
	var all sync.Map
	find := func(key string) *weighted.Weighted {
		if s, ok := all.Load(key); ok {
			return s.(*weighted.Weighted)
		}
		s, _ := all.LoadOrStore(key, weighted.NewWeighted(int64(f.limit)))
		return s.(*weighted.Weighted)
	}
	for _, k := range f.keys {
		if s := find(k); f.full {
			s.TryAcquire(int64(f.limit))
		}
	}
	return func(w *walk, n int) (granted int) {
		at := *w
		for range n {
			if s := find(f.keys[at.next()]); s.TryAcquire(1) {
				granted++
				s.Release(1)
			}
		}
		*w = at
		return granted
	}
}}
