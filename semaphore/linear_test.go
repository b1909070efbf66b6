package semaphore_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/semaphore"
)

// call is one operation of a recorded run: an acquire of n slots with a limit or, if limit is 0, a
// release of n slots.
type call struct{ key, n, limit int }

// counter is the sequential specification of one key: the state is the number of held slots, an
// output the ordinal, 0 for full, or -1 for a release.
var counter = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := make([][]porcupine.Operation, keysOfRun)
		for _, op := range history {
			key := op.Input.(call).key
			byKey[key] = append(byKey[key], op)
		}
		return byKey
	},
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		held, in, out := state.(int), input.(call), output.(int)
		switch {
		case in.limit == 0:
			return out == -1, held - in.n
		case held+in.n > in.limit:
			return out == 0, held
		default:
			return out == held+in.n, held + in.n
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprint(input, " -> ", output) },
}

const keysOfRun = 2

// TestLinearizable records the results of goroutines with changing limits, which acquire by key, by
// handle and for owners that end, and asks whether a sequential order explains all of them. The
// shards are full of other keys, so idle keys leave at once.
func TestLinearizable(t *testing.T) {
	seed := testmode.Seed(t)
	for run := range 40 {
		m := semaphore.New[int]()
		for key := range 5_000 {
			if _, err := m.TryAcquire(keysOfRun+key, 1); err != nil {
				t.Fatal(err)
			}
		}
		var handles []*semaphore.Handle[int]
		for key := range keysOfRun {
			if run%2 == 0 {
				h, err := m.Handle(key)
				if err != nil {
					t.Fatal(err)
				}
				handles = append(handles, h)
			}
		}
		var clock atomic.Int64
		histories := make([][]porcupine.Operation, 4)
		var all sync.WaitGroup
		for w := range histories {
			all.Go(func() {
				r := &recorder{t: t, m: m, clock: &clock, id: w, Rand: rand.New(rand.NewPCG(seed, uint64(4*run+w)))}
				r.handles = handles
				r.run(60)
				histories[w] = r.history
			})
		}
		all.Wait()
		var history []porcupine.Operation
		for _, h := range histories {
			history = append(history, h...)
		}
		switch porcupine.CheckOperationsTimeout(counter, history, 20*time.Second) {
		case porcupine.Illegal:
			for _, op := range history {
				t.Logf("%d: %d to %d: %v -> %v", op.ClientId, op.Call, op.Return, op.Input, op.Output)
			}
			t.Fatalf("run %d: no sequential order explains these results", run)
		case porcupine.Unknown:
			t.Fatalf("run %d: the checker timed out", run)
		}
		m.Check(t)
	}
}

// recorder is a goroutine that records its operations and their results.
type recorder struct {
	*rand.Rand
	t       *testing.T
	m       *semaphore.Manager[int]
	clock   *atomic.Int64
	id      int
	history []porcupine.Operation
	handles []*semaphore.Handle[int] // of all keys, or nil: a handle keeps its key from leaving
}

func (r *recorder) record(in call, do func() int) {
	op := porcupine.Operation{ClientId: r.id, Input: in, Call: r.clock.Add(1)}
	op.Output = do()
	op.Return = r.clock.Add(1)
	r.history = append(r.history, op)
}

// run acquires and releases. Sometimes the owner of the slot ends instead, which frees it as a
// release does.
func (r *recorder) run(steps int) {
	owner := semaphore.NewOwner(r.t.Context())
	for range steps {
		in := call{key: r.IntN(keysOfRun), n: 1 + r.IntN(2), limit: 2 + r.IntN(4)}
		var s *semaphore.Slot
		ends, byHandle := r.IntN(4) == 0, r.handles != nil && r.IntN(2) == 0
		r.record(in, func() int {
			var err error
			switch {
			case ends && byHandle:
				s, err = r.handles[in.key].TryAcquireFor(owner, in.n, in.limit)
			case ends:
				s, err = r.m.TryAcquireFor(owner, in.key, in.n, in.limit)
			case byHandle:
				s, err = r.handles[in.key].TryAcquireN(in.n, in.limit)
			default:
				s, err = r.m.TryAcquireN(in.key, in.n, in.limit)
			}
			if err != nil {
				return 0
			}
			return s.Ordinal()
		})
		if s == nil {
			continue
		}
		r.record(call{key: in.key, n: in.n}, func() int {
			if ends {
				owner.Close()
			} else if err := s.Release(); err != nil {
				r.t.Error(err)
			}
			return -1
		})
		if ends {
			owner = semaphore.NewOwner(r.t.Context())
		}
	}
}
