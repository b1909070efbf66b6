package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lockkeeper/lockkeeper"
)

// manyTries is the check that one of several simultaneous tries of a free lock succeeds.
const manyTries = "Contention/tries"

// Contention: many clients at once, recorded and judged.
var contentionChecks = []check{
	{"Contention/one exclusive lock", 0, func(w *world) {
		w.manyClients(6, 8, nil, func(int, int) demand { return demand{targets: []lockkeeper.Target{exclusive("db")}} })
	}},
	{"Contention/many goroutines of one client", 0, func(w *world) {
		first := w.worker("shared client", nil)
		w.run(8, 8, func(i int) *worker {
			if i == 0 {
				return first
			}
			return first.sameClient()
		}, func(int, int) demand { return demand{targets: []lockkeeper.Target{exclusive("db")}} })
	}},
	{manyTries, 0, func(w *world) {
		w.manyClients(6, 20, nil, func(int, int) demand {
			return demand{targets: []lockkeeper.Target{exclusive("db")}, try: true}
		})
	}},
	{"Contention/readers and writers", shares, func(w *world) {
		w.manyClients(6, 8, nil, func(i, n int) demand {
			if (i+n)%3 == 0 {
				return demand{targets: []lockkeeper.Target{exclusive("db")}}
			}
			return demand{targets: []lockkeeper.Target{shared("db")}}
		})
	}},
	{"Contention/permits under different limits", counts, func(w *world) {
		w.manyClients(6, 8, nil, func(i, n int) demand {
			limit := 1 + (i+n)%4
			return demand{targets: []lockkeeper.Target{permits("k", 1+n%limit, limit)}}
		})
	}},
	{"Contention/hierarchy", trees | shares, func(w *world) {
		paths := []string{"db", "db/1", "db/2", "db/1/x", "db/1/y", "db/2/x"}
		w.manyClients(6, 8, nil, func(i, n int) demand {
			path := paths[(i*5+n*7)%len(paths)]
			if (i+n)%2 == 0 {
				return demand{targets: []lockkeeper.Target{shared(path)}}
			}
			return demand{targets: []lockkeeper.Target{exclusive(path)}}
		})
	}},
	{"Contention/many targets in any order", many, func(w *world) {
		paths := []string{"a", "b", "c", "d"}
		w.manyClients(6, 8, nil, func(i, n int) demand {
			x, y := (i+n)%4, (i*3+n*2+1)%4
			if x == y {
				y = (y + 1) % 4
			}
			return demand{targets: []lockkeeper.Target{exclusive(paths[x]), exclusive(paths[y])}}
		})
	}},
	{"Contention/priorities", ranked, func(w *world) {
		w.manyClients(6, 6, nil, func(i, n int) demand {
			return demand{targets: []lockkeeper.Target{exclusive("db")}, priority: (i + n) % 3}
		})
	}},
	{"Contention/everything arrives twice", 0, func(w *world) {
		w.manyClients(4, 8, func(l *link) { l.duplicate = true }, func(int, int) demand {
			return demand{targets: []lockkeeper.Target{exclusive("db")}}
		})
	}},
	{"Contention/answers are lost", 0, func(w *world) {
		w.manyClients(4, 6, func(l *link) { l.lossy = true }, func(int, int) demand {
			return demand{targets: []lockkeeper.Target{exclusive("db")}}
		})
	}},
	{"Contention/permits, answers are lost", counts, func(w *world) {
		w.manyClients(4, 6, func(l *link) { l.lossy = true }, func(i, n int) demand {
			return demand{targets: []lockkeeper.Target{permits("k", 1+n%2, 3)}}
		})
	}},
}

// manyClients runs clients that make the given number of requests each. Every request must be
// granted.
func (w *world) manyClients(clients, times int, change func(*link), what func(i, n int) demand) {
	w.Helper()
	// A wait fails if the engine does not answer for a TTL, as on a busy machine. But a client learns of a
	// lost hint in its next renewal, after a third of the TTL.
	var probe link
	if change != nil {
		change(&probe)
	}
	ttl := 10 * lockkeeper.MinTTL
	if probe.lossy {
		ttl = 5 * lockkeeper.MinTTL
	}
	w.run(clients, times, func(int) *worker {
		return w.worker("client", change, lockkeeper.SessionTTL(ttl))
	}, what)
}

func (w *world) run(workers, times int, make func(i int) *worker, what func(i, n int) demand) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*w.maxWait())
	defer cancel()
	var running sync.WaitGroup
	var granted atomic.Int64
	for i := range workers {
		k := make(i)
		running.Go(func() {
			for n := range times {
				d := what(i, n)
				h, err := k.acquire(ctx, d, nil)
				if d.try && errors.Is(err, lockkeeper.ErrNotAcquired) {
					continue
				}
				if err != nil {
					w.Errorf("%s asks for %v: %v", k.name, d.targets, err)
					return
				}
				granted.Add(1)
				if t := d.targets[0]; t.Mode == lockkeeper.ModeExclusive {
					h.increment(lockkeeper.Path(fmt.Sprintf("counter of %s", t.Path)))
				}
				if err := h.giveBack(ctx); err != nil && !(k.link.lossy && errors.Is(err, lockkeeper.ErrUnavailable)) {
					w.Errorf("%s releases: %v", k.name, err)
				}
			}
		})
	}
	running.Wait()
	if granted.Load() == 0 {
		w.Error("no request was granted: the test proved nothing")
	}
}
