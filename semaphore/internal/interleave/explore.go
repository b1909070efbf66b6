package interleave

import (
	"math/bits"
	"math/rand/v2"
)

// Program is a small concurrent program that is run under every schedule.
type Program struct {
	Name string
	// Start makes anew all that the goroutines use, and adds them with World.Go.
	// It must do the same each time.
	Start func(*World)
	// End looks at what is left when all goroutines have ended, and says what is
	// wrong with it. It may be nil.
	End func(*World) error
	// Judge sees each call and its return. It may be nil.
	Judge Judge
}

// Result is what an exploration has seen.
type Result struct {
	States     int // different ones in which there was a choice
	Executions int // in the last pass; most end in a state that was seen before
	Finished   int // executions up to the end of all goroutines
	Operations int // in the longest execution
	Passes     int
	Partial    bool // there were more executions than were allowed
	Failure    *Failure
}

// Failure is a schedule under which the program is wrong.
type Failure struct {
	What     string
	Schedule string // for Replay
	Story    string
}

// mask is a set of goroutines, by their index.
type mask uint16

// explorer looks at all executions of a program, depth first.
type explorer struct {
	program *Program
	judge   Judge
	workers []*worker
	classes map[name]*class
	epoch   uint32

	path      []branch
	visited   map[uint64]struct{}
	finals    map[uint64]bool // what memory was when all had ended
	surprised bool            // a hidden location turned out not to be one
	result    Result

	random    *rand.Rand // if not nil, choices are random
	bound     int        // if not negative, the most switches away from who could go on
	naive     bool       // no state is cut, nothing is hidden, everything has its turn
	everyTurn bool       // every operation has its turn
	deaf      bool       // the judge hears nothing
	warm      int        // how often it runs at random before the first pass
	doubts    int        // and after the last one
	follow    *following // if not nil, what is replayed
	tell      bool

	keeps map[string]int // by label of a last use: after how many KeepAlives it does more
}

// branch is a state on the path to the current one in which several could go on.
type branch struct {
	can, rest mask // who could, and who of them was not tried yet
	chosen    uint8
}

// Explore runs the program under every schedule, or until it has found one that
// is wrong, or has begun as many executions as most says.
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
		if !x.surprised {
			x.result.Failure = x.doubt()
			return x.result
		}
	}
}

// warmUp runs the program at random, to see which locations are shared: a pass
// that is surprised by one has to begin again. What goes wrong here will go wrong
// in a pass, too.
func (x *explorer) warmUp() {
	x.random, x.everyTurn, x.deaf = rand.New(rand.NewPCG(1, 2)), true, true
	for range x.warm {
		x.execute()
	}
	x.random, x.everyTurn, x.deaf = nil, false, false
}

// doubt runs the program at random, with a turn for each operation, and looks
// whether that leads to where no pass has been.
func (x *explorer) doubt() *Failure {
	x.random, x.everyTurn = rand.New(rand.NewPCG(3, 4)), true
	for range x.doubts {
		w := x.execute()
		switch {
		case w.failure != "":
		case x.surprised:
			w.failure = "a location is shared"
		case !x.finals[w.final]:
			w.failure = "an end is reached"
		default:
			continue
		}
		return &Failure{What: "the explorer is wrong: by chance it was seen, and not before, that " + w.failure,
			Schedule: w.passed.String()}
	}
	return nil
}

func newExplorer(p *Program) *explorer {
	x := &explorer{
		program: p,
		judge:   p.Judge,
		classes: map[name]*class{},
		bound:   -1,
		warm:    300,
		doubts:  1000,
		keeps:   map[string]int{},
	}
	if x.judge == nil {
		x.judge = indifferent{}
	}
	return x
}

func (x *explorer) close() {
	for _, k := range x.workers {
		k.end()
	}
}

// pass looks at all executions, and returns one that is wrong, or nil. It ends
// early if it is surprised.
func (x *explorer) pass(most int) *World {
	for _, c := range x.classes {
		c.met = c.isMet()
	}
	x.surprised = false
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
		if w.failure != "" && !x.surprised {
			return w
		}
		if x.surprised && !x.naive || !x.backtrack() {
			return nil
		}
		if x.result.Executions >= most {
			x.result.Partial = true
			return nil
		}
	}
}

// backtrack goes to the next execution; it reports whether there is one.
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

// pick chooses one of those who can go on; by is who stands now.
func (x *explorer) pick(w *World, can mask, by *goroutine) *goroutine {
	switch {
	case x.follow != nil:
		return x.follow.pick(w, can, by)
	case can&(can-1) == 0 && w.lonely:
		return w.goroutines[bits.TrailingZeros16(uint16(can))]
	case x.random != nil:
		for {
			if i := x.random.IntN(len(w.goroutines)); can&(1<<i) != 0 {
				return w.goroutines[i]
			}
		}
	}
	w.lonely = can&(can-1) == 0
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

// grow adds a branch to the path, unless its state was seen before.
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
		c = &class{met: x.naive}
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
