package semaphore_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// shape is one way in which keys are used. All peers are measured in each.
type shape struct {
	name       string
	goroutines int
	keys       int
	limit      int
	waits      bool
	full       bool
	apart      bool // each goroutine has one key for itself
	peers      []peer
}

const unlimited = math.MaxInt

// How many goroutines there are if each is to have a core.
var cores = runtime.GOMAXPROCS(0)

// shapes lists what is measured. A mutex stands for the limits that it can: 1, and where nobody is
// ever refused it waits instead.
func shapes() (all []shape) {
	own := []peer{byKey, byKeyEscaping, byHandle, byOwner}
	counters := append(own, casLoop, casMap, weightedMap)
	both := append(counters, mutexMap, mutexCounted)
	for _, keys := range []int{1, 1_000, 100_000} {
		for _, goroutines := range []int{1, cores} {
			all = append(all, shape{name: fmt.Sprintf("goroutines=%d/keys=%d", goroutines, keys),
				goroutines: goroutines, keys: keys, limit: unlimited, waits: true, peers: both})
		}
	}
	for _, keys := range []int{1, 1_000, 100_000} {
		for _, goroutines := range []int{1, cores} {
			all = append(all, shape{name: fmt.Sprintf("refused/goroutines=%d/keys=%d", goroutines, keys),
				goroutines: goroutines, keys: keys, limit: 1, full: true, peers: both})
		}
	}
	return append(all,
		shape{
			name:       "apart/goroutines=2/keys=2",
			goroutines: 2,
			keys:       2,
			limit:      unlimited,
			waits:      true,
			apart:      true,
			peers:      both,
		},
		shape{name: "goroutines=128/keys=1/limit=1", goroutines: 128, keys: 1, limit: 1, peers: both},
		shape{name: "goroutines=128/keys=1/limit=8", goroutines: 128, keys: 1, limit: 8, peers: counters},
		shape{name: "goroutines=128/keys=1/unlimited", goroutines: 128, keys: 1, limit: unlimited, waits: true, peers: both})
}

// field makes the keys of a shape, which are the same for all peers.
func (s *shape) field() *field {
	f := &field{keys: make([]string, s.keys), limit: s.limit, waits: s.waits, full: s.full}
	for i := range f.keys {
		f.keys[i] = fmt.Sprintf("app-%d-production", i)
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(s.keys, func(i, j int) {
		f.keys[i], f.keys[j] = f.keys[j], f.keys[i]
	})
	return f
}

// run does n operations of a peer with the goroutines of the shape, and returns
// how many of them got a slot. Goroutines take small portions of the work, so
// that all of them end at about the same time.
func (s *shape) run(work loop, n int) (granted int) {
	if s.goroutines == 1 {
		return work(s.walk(0), n)
	}
	const portion = 512
	var next, got atomic.Int64
	var all sync.WaitGroup
	for i := range s.goroutines {
		all.Go(func() {
			w := s.walk(i)
			for {
				from := int(next.Add(portion)) - portion
				if from >= n {
					return
				}
				got.Add(int64(work(w, min(portion, n-from))))
			}
		})
	}
	all.Wait()
	return int(got.Load())
}

// walk is the way of one goroutine. No two of a shape with many keys have the same.
func (s *shape) walk(goroutine int) *walk {
	if s.apart {
		return &walk{at: goroutine % s.keys, step: s.keys, keys: s.keys} // on the spot
	}
	step := max(1, int(float64(s.keys)*0.618))
	for found := 0; ; step++ {
		if gcd(step, s.keys) != 1 {
			continue
		}
		if found++; s.keys == 1 || found > goroutine {
			return &walk{at: goroutine * s.keys / s.goroutines % s.keys, step: step % max(s.keys, 2), keys: s.keys}
		}
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// BenchmarkSlots is a slot that is taken and freed, or refused, beside what
// others use for it.
func BenchmarkSlots(b *testing.B) {
	for _, s := range shapes() {
		for _, p := range s.peers {
			b.Run(s.name+"/"+p.name, func(b *testing.B) {
				work := p.ready(s.field())
				s.run(work, min(b.N, 2*s.keys)) // as it is after a while
				b.ReportAllocs()
				b.ResetTimer()
				granted := s.run(work, b.N)
				b.ReportMetric(float64(granted)/float64(b.N), "granted/op")
			})
		}
	}
}
