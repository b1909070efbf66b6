package canalsteps

import "math"

// explorer goes through every state that a scope can get into, breadth first: the
// way to a state that it remembers is a shortest one.
type explorer struct {
	turn
	workersSeen *pool[worker]
	sharedSeen  *pool[shared]
	states      *pool[packed]
	from        []arrow
	edges       graph
	ends        []uint32 // states in which all are finished
	last        arrow    // the latest step, which broke a rule if one is broken
	next        state    // where it led to
	circle      []uint32 // states that lead from one to the next, and to the first again
}

// packed is a state, as numbers in the pools of its parts. A state has some 200
// bytes, but its parts are few: so millions of states fit into memory.
type packed struct {
	shared  uint32
	workers [mostWorkers]uint16
}

// arrow is how a state was reached first.
type arrow struct {
	state  uint32
	worker uint8
}

// explore returns with the first fault, or when there is no state left.
func explore(sc scope) *explorer {
	sc.prepare()
	x := &explorer{workersSeen: newPool[worker](), sharedSeen: newPool[shared](), states: newPool[packed]()}
	x.turn.scope = &sc
	x.steps = &algorithm{}
	*x.steps = canal
	if sc.plant != nil {
		sc.plant(x.steps)
	}
	st := x.start()
	x.add(arrow{}, x.pack(packed{}, &st, -1))
	for i := 0; i < len(x.states.values); i++ {
		if !x.expand(uint32(i)) {
			return x
		}
	}
	x.endless()
	return x
}

// start is the state before the first step.
func (x *explorer) start() state {
	var st state
	st.resources = x.views
	st.cells = 1
	st.tables[1].length = x.smallest
	x.s, x.workers = &st.shared, &st.workers
	for i := range x.programs {
		x.me, x.w = uint8(i)+1, &st.workers[i]
		x.begin()
		for x.steps[x.w.at].glue {
			x.steps[x.w.at].run(&x.turn)
		}
	}
	return st
}

// pack gives numbers to the parts of st that may differ from those in p: the shared
// one and one worker's, or everything, if worker is -1. What must hold of the shared
// part is looked at when it is seen for the first time.
func (x *explorer) pack(p packed, st *state, worker int) packed {
	if worker < 0 || st.shared != x.sharedSeen.values[p.shared] {
		n, fresh := x.sharedSeen.number(&st.shared)
		if fresh {
			x.invariants(&st.shared)
		}
		p.shared = n
	}
	for i := range st.workers {
		if i == worker || worker < 0 {
			n, _ := x.workersSeen.number(&st.workers[i])
			if n > math.MaxUint16 {
				panic("canalsteps: " + x.name + ": too many states of one worker for the model")
			}
			p.workers[i] = uint16(n)
		}
	}
	return p
}

func (x *explorer) unpack(p packed) (st state) {
	st.shared = x.sharedSeen.values[p.shared]
	for i := range st.workers {
		st.workers[i] = x.workersSeen.values[p.workers[i]]
	}
	return st
}

func (x *explorer) add(from arrow, p packed) uint32 {
	n, fresh := x.states.number(&p)
	if fresh {
		x.from = append(x.from, from)
	}
	return n
}

// expand does each step that can be done in a state.
func (x *explorer) expand(n uint32) bool {
	p := x.states.values[n]
	st := x.unpack(p)
	moves := 0
	x.edges.begin()
	for i := range x.programs {
		if st.workers[i].at == finished {
			continue
		}
		x.next = st
		if !x.step(&x.next, i) {
			if x.next != st {
				panic("canalsteps: who waits has changed something")
			}
			continue
		}
		moves++
		x.last = arrow{n, uint8(i)}
		x.edges.add(x.add(x.last, x.pack(p, &x.next, i)))
		if x.fault.text != "" {
			return false
		}
	}
	if moves == 0 {
		x.ends = append(x.ends, n)
		x.last = x.from[n]
		x.end(&st)
	}
	return x.fault.text == ""
}
