package interleave

import (
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// instruction is one of a random program.
type instruction struct {
	do       string
	at       int
	a, b     int64
	ifResult int64 // it is only done if the result before it was not this
}

var verbs = []string{"load", "store", "store", "add", "swap", "cas", "locked", "blindly", "both", "own", "constant",
	"point", "pointed"}

// sketch is a random program: calls, each of some instructions, of some goroutines.
type sketch [][][]instruction

func randomSketch(r *rand.Rand) sketch {
	s := make(sketch, 2+r.IntN(2))
	for g := range s {
		s[g] = make([][]instruction, 1+r.IntN(3))
		for c := range s[g] {
			for range 1 + r.IntN(2) {
				s[g][c] = append(s[g][c], instruction{
					verbs[r.IntN(len(verbs))], r.IntN(2), int64(r.IntN(2)), int64(r.IntN(3)), int64(r.IntN(6)),
				})
			}
		}
	}
	return s
}

// scene is the shared memory of a random program.
type scene struct {
	numbers  [2]Int64
	constant Uint32
	pointer  Pointer[Int64]
	mutex    Mutex
	plain    int64 // guarded by mutex
}

func (s *scene) do(i instruction, own *Int64) int64 {
	x := &s.numbers[i.at]
	switch i.do {
	case "load":
		return x.Load()
	case "store":
		x.Store(i.b)
	case "add":
		return x.Add(i.b)
	case "swap":
		return x.Swap(i.b)
	case "cas":
		return int64(truth(x.CompareAndSwap(i.a, i.b)))
	case "locked", "blindly":
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.plain = 2*s.plain + i.b
		if i.do == "locked" {
			return s.plain
		}
	case "both":
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.plain++
		x.Add(i.a)
		return s.plain + 10*x.Load()
	case "own":
		return own.Add(1)
	case "constant":
		return int64(s.constant.Load())
	case "point":
		n := new(Int64)
		n.Store(i.b)
		s.pointer.Store(n)
	case "pointed":
		if n := s.pointer.Load(); n != nil {
			return n.Add(i.a)
		}
	}
	return -1
}

// past is a judge that records which call returned before which other one began.
type past struct {
	calls  []Event
	open   map[Event]bool
	before order
}

type order map[[2]Event]bool

func (p *past) Begin() { *p = past{open: map[Event]bool{}, before: order{}} }

// Record gets a call as an even number, and its return as the next one.
func (p *past) Record(e Event) error {
	if e&1 == 1 {
		delete(p.open, e-1)
		return nil
	}
	for _, other := range p.calls {
		if !p.open[other] {
			p.before[[2]Event{other, e}] = true
		}
	}
	p.calls, p.open[e] = append(p.calls, e), true
	return nil
}

func (p *past) State() (h uint64) {
	for pair := range p.before {
		h += mix(uint64(pair[0]), uint64(pair[1]))
	}
	for _, e := range p.calls {
		h += mix(uint64(e), 2<<40)
	}
	for e := range p.open {
		h += mix(uint64(e), 1<<40)
	}
	return h
}

func (p *past) Describe(e Event) string { return fmt.Sprint(e) }

// run is a way to run a random program.
type run struct {
	naive   bool // every single interleaving, without reductions
	cold    bool // without a warm-up
	forgets bool // goroutines know only their last results between calls, and there is no judge
}

// outcomes collects the outcomes of a random program: for each text of the results, the orders of
// calls seen with it; or a failure.
func (s sketch) outcomes(run run) (all map[string][]order, wrong string) {
	all = map[string][]order{}
	judge, sc := &past{}, (*scene)(nil)
	var results []string
	p := &Program{Start: func(w *World) {
		sc, results = &scene{}, make([]string, len(s))
		sc.constant.Store(3)
		w.Share(1, sc)
		for g := range s {
			w.Go("", func() { s.play(w, g, sc, run.forgets, &results[g]) })
		}
	}}
	x := newExplorer(p)
	defer x.close()
	if !run.forgets {
		x.judge = judge
	}
	p.End = func(*World) error {
		what := fmt.Sprint(results, sc.numbers[0].Load(), sc.numbers[1].Load(), sc.plain)
		if n := sc.pointer.Load(); n != nil {
			what += fmt.Sprint(n.Load())
		}
		if x.random == nil {
			all[what] = append(all[what], judge.before)
		}
		return nil
	}
	if run.naive {
		x.naive, x.everyChoice = true, true
		if w := x.pass(1 << 30); w != nil {
			return nil, w.failure
		}
		return all, ""
	}
	x.randomRuns = 30
	if run.cold {
		x.warm = 0
	}
	if r := x.explore(1 << 30); r.Failure != nil {
		return nil, r.Failure.What
	}
	return all, ""
}

// play runs one goroutine.
func (s sketch) play(w *World, g int, sc *scene, forgets bool, results *string) {
	var own Int64
	last, knows := int64(-2), uint64(0)
	for c, call := range s[g] {
		e := Event(g<<8 | c<<1)
		w.Call(e)
		for _, in := range call {
			if last != in.ifResult {
				last = sc.do(in, &own)
			}
			knows = mix(knows, uint64(last)) // all results so far
			*results += fmt.Sprint(last, " ")
		}
		if forgets {
			knows = uint64(c)<<8 | uint64(last&0xff)
			*results = fmt.Sprint(last, own.value)
		}
		w.Return(e|1, mix(knows, uint64(own.value)))
	}
}

// interleavings returns about how many there are.
func (s sketch) interleavings() *big.Int {
	all, ways, n := int64(0), big.NewInt(1), new(big.Int)
	for _, calls := range s {
		turns := int64(0)
		for _, call := range calls {
			turns += 2 // its begin and its end
			for _, i := range call {
				turns++
				if i.do == "locked" || i.do == "blindly" || i.do == "both" {
					turns += 2
				}
			}
		}
		all += turns
		ways.Mul(ways, n.Binomial(all, turns))
	}
	return ways
}

// TestReductionsLoseNoOutcome compares the outcomes of random programs with those of every single
// interleaving: every result must be there, with an order of calls that is at least as strict.
func TestReductionsLoseNoOutcome(t *testing.T) {
	r := testmode.Rand(t)
	for i := 0; i < testmode.Pick(150, 5000); {
		s := randomSketch(r)
		if s.interleavings().Cmp(big.NewInt(5000)) > 0 {
			continue
		}
		i++
		for _, forgets := range []bool{false, true} {
			every, wrong := s.outcomes(run{naive: true, forgets: forgets})
			found := map[string][]order{}
			if wrong == "" {
				found, wrong = s.outcomes(run{cold: i%2 == 0, forgets: forgets})
			}
			if wrong == "" {
				wrong = missing(every, found)
			}
			if wrong != "" {
				t.Fatalf("program %d, goroutines forget: %t\n%+v\n%s", i, forgets, s, wrong)
			}
		}
	}
}

// missing describes an outcome that is in every but not in found.
func missing(every, found map[string][]order) string {
	have, want := slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(every))
	if !slices.Equal(have, want) {
		return fmt.Sprintf("%d outcomes:\n%s\nnot %d:\n%s", len(have), strings.Join(have, "\n"), len(want),
			strings.Join(want, "\n"))
	}
	for what, orders := range every {
		for _, o := range orders {
			if !slices.ContainsFunc(found[what], o.isIn) {
				return fmt.Sprintf("%s: no order as strict as %v", what, o)
			}
		}
	}
	return ""
}

// isIn reports whether other is at least as strict as o.
func (o order) isIn(other order) bool {
	for pair := range o {
		if !other[pair] {
			return false
		}
	}
	return true
}
