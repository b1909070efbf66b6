package interleave

import (
	"math/bits"
	"math/rand/v2"
)

// Program is a small concurrent program that is run under every schedule.
type Program struct {
	Name string
	// Start makes everything that the goroutines use, and adds them with World.Go. It must be
	// deterministic.
	Start func(*World)
	// End checks the final state, after all goroutines have ended. It may be nil.
	End func(*World) error
	// Judge records each call and its return. It may be nil.
	Judge Judge
}

// Result is the result of an exploration.
type Result struct {
	States     int // different states with a choice
	Executions int // in the last pass; most end in a visited state
	Finished   int // executions up to the end of all goroutines
	Operations int // in the longest execution
	Passes     int
	Partial    bool // the exploration reached its limit of executions
	Failure    *Failure
}

// Failure is a schedule under which the program fails.
type Failure struct {
	What     string
	Schedule string // for Replay
	Story    string
}

// mask is a set of goroutines, as bits by index.
type mask uint16

// explorer searches all executions of a program, depth first.
type explorer struct {
	program *Program
	judge   Judge
	workers []*worker
	classes map[name]*class
	epoch   uint32

	path     []branch
	visited  map[uint64]struct{}
	finals   map[uint64]bool // hashes of the memory at the ends
	outdated bool            // a location treated as hidden is not: start again
	result   Result

	random      *rand.Rand // if not nil, choices are random
	bound       int        // if not negative, the most preemptions
	naive       bool       // no state ends an execution, no location is hidden
	everyChoice bool       // every operation has a choice
	unjudged    bool       // the judge records nothing
	warm        int        // number of random runs before the first pass
	randomRuns  int        // number of random runs after the last pass
	follow      *following // if not nil, the schedule to replay
	describe    bool

	keeps map[string]int // by label of a last use: its number of KeepAlives, if operations follow
}

// branch is a state with a choice on the path to the current state.
type branch struct {
	can, rest mask // enabled goroutines, and the enabled ones not tried yet
	chosen    uint8
}

// Explore runs the program under every schedule, until one fails or most executions have begun.
func Explore(p *Program, most int) Result {
	x := newExplorer(p)
	defer x.close()
	return x.explore(most)
}

func (x *explorer) explore(most int) Result {
	x.warmUp()
	for {
		x.result.Passes++
		w := x.pass(most)
		if w != nil {
			return x.failed(w)
		}
		if x.result.Partial {
			return x.result
		}
		if !x.outdated {
			x.result.Failure = x.crossCheck()
			return x.result
		}
	}
}

// warmUp runs the program at random to find locations that are not hidden: a pass that finds
// another one has to start again. It ignores failures, because a pass finds them, too.
func (x *explorer) warmUp() {
	x.random, x.everyChoice, x.unjudged = rand.New(rand.NewPCG(1, 2)), true, true
	for range x.warm {
		x.execute()
	}
	x.random, x.everyChoice, x.unjudged = nil, false, false
}

// crossCheck runs the program at random, with a choice before each operation. It fails if a run
// ends in a state that no pass has visited.
func (x *explorer) crossCheck() *Failure {
	x.random, x.everyChoice = rand.New(rand.NewPCG(3, 4)), true
	for range x.randomRuns {
		w := x.execute()
		switch {
		case w.failure != "":
		case x.outdated:
			w.failure = "a location is shared"
		case !x.finals[w.final]:
			w.failure = "an end is reached"
		default:
			continue
		}
		return &Failure{What: "the explorer is wrong: only a random run shows that " + w.failure,
			Schedule: w.ran.String()}
	}
	return nil
}

func newExplorer(p *Program) *explorer {
	x := &explorer{
		program:    p,
		judge:      p.Judge,
		classes:    map[name]*class{},
		bound:      -1,
		warm:       300,
		randomRuns: 1000,
		keeps:      map[string]int{},
	}
	if x.judge == nil {
		x.judge = noJudge{}
	}
	return x
}

func (x *explorer) close() {
	for _, k := range x.workers {
		k.end()
	}
}

// pass searches all executions, and returns the first one that fails; nil if none does. It ends
// early if x.outdated is set.
func (x *explorer) pass(most int) *World {
	for _, c := range x.classes {
		c.visible = c.isVisible()
	}
	x.outdated = false
	x.path, x.visited, x.finals = x.path[:0], map[uint64]struct{}{}, map[uint64]bool{}
	x.result = Result{Passes: x.result.Passes}
	for {
		w := x.execute()
		x.result.Executions++
		x.result.Operations = max(x.result.Operations, w.steps)
		x.result.States = len(x.visited)
		if w.ended {
			x.result.Finished++
			x.finals[w.final] = true
		}
		if w.failure != "" && !x.outdated {
			return w
		}
		if x.outdated && !x.naive || !x.backtrack() {
			return nil
		}
		if x.result.Executions >= most {
			x.result.Partial = true
			return nil
		}
	}
}

// backtrack prepares the next execution, and reports whether there is one.
func (x *explorer) backtrack() bool {
	for len(x.path) > 0 {
		b := &x.path[len(x.path)-1]
		if b.rest != 0 {
			b.chosen = uint8(bits.TrailingZeros16(uint16(b.rest)))
			b.rest &^= 1 << b.chosen
			return true
		}
		x.path = x.path[:len(x.path)-1]
	}
	return false
}

// pick chooses one of the enabled goroutines; by is the one that pauses.
func (x *explorer) pick(w *World, can mask, by *goroutine) *goroutine {
	switch {
	case x.follow != nil:
		return x.follow.pick(w, can, by)
	case can&(can-1) == 0 && w.single:
		return w.goroutines[bits.TrailingZeros16(uint16(can))]
	case x.random != nil:
		for {
			if i := x.random.IntN(len(w.goroutines)); can&(1<<i) != 0 {
				return w.goroutines[i]
			}
		}
	}
	w.single = can&(can-1) == 0
	return x.branch(w, can, by)
}

func (x *explorer) branch(w *World, can mask, by *goroutine) *goroutine {
	if by != nil && can&(1<<by.index) == 0 {
		by = nil
	}
	if w.depth == len(x.path) && !x.grow(w, can, by) {
		return nil
	}
	b := &x.path[w.depth]
	if b.can != can {
		w.failure = "the program is not deterministic: the same choices led to another state"
		return nil
	}
	w.depth++
	if by != nil && int(b.chosen) != by.index {
		w.switches++
	}
	return w.goroutines[b.chosen]
}

// grow adds a branch to the path, unless its state was visited.
func (x *explorer) grow(w *World, can mask, by *goroutine) bool {
	first := bits.TrailingZeros16(uint16(can))
	if by != nil {
		first = by.index
	}
	b := branch{can, can &^ (1 << first), uint8(first)}
	if x.naive {
		x.path = append(x.path, b)
		return true
	}
	h := w.state()
	if x.bound >= 0 {
		h = mix(h, uint64(w.switches)<<8|uint64(first))
		if by != nil {
			h++
			if w.switches >= x.bound {
				b.rest = 0
			}
		}
	}
	if _, known := x.visited[h]; known {
		return false
	}
	x.visited[h] = struct{}{}
	x.path = append(x.path, b)
	return true
}

func (x *explorer) class(n name) *class {
	c := x.classes[n]
	if c == nil {
		c = &class{visible: x.naive}
		x.classes[n] = c
	}
	return c
}

func (x *explorer) worker(i int) *worker {
	for len(x.workers) <= i {
		x.workers = append(x.workers, newWorker())
	}
	return x.workers[i]
}
