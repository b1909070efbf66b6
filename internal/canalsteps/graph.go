package canalsteps

import "slices"

// graph has the steps between the states, each state's after the other's.
type graph struct {
	first []uint32 // of each state, in to
	to    []uint32
}

func (g *graph) begin()        { g.first = append(g.first, uint32(len(g.to))) }
func (g *graph) add(to uint32) { g.to = append(g.to, to) }

// after lists the states that follow a state.
func (g *graph) after(n uint32) []uint32 {
	if int(n)+1 < len(g.first) {
		return g.to[g.first[n]:g.first[n+1]]
	}
	return g.to[g.first[n]:]
}

// circle finds states that lead from one to the next and then to the first again.
// It takes away, again and again, states that no other one leads to. What is left,
// if anything, is in circles or behind one.
func (g *graph) circle() []uint32 {
	into := make([]uint32, len(g.first))
	for _, n := range g.to {
		into[n]++
	}
	ready := []uint32{0}
	away := 0
	for ; len(ready) > 0; away++ {
		n := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		for _, next := range g.after(n) {
			if into[next]--; into[next] == 0 {
				ready = append(ready, next)
			}
		}
	}
	if away == len(g.first) {
		return nil
	}
	return g.backwards(into)
}

// backwards goes from one of the states that are left, which have something in
// into, to one before it, until it comes to a state again.
func (g *graph) backwards(into []uint32) []uint32 {
	before := map[uint32]uint32{}
	n := uint32(0)
	for i := range into {
		if into[i] > 0 {
			n = uint32(i)
			for _, next := range g.after(n) {
				if into[next] > 0 {
					before[next] = n
				}
			}
		}
	}
	place := map[uint32]int{}
	var way []uint32
	for ; ; n = before[n] {
		if from, seen := place[n]; seen {
			circle := way[from:]
			slices.Reverse(circle)
			return circle
		}
		place[n] = len(way)
		way = append(way, n)
	}
}

// endless sees to it that every schedule comes to an end.
func (x *explorer) endless() {
	x.circle = x.edges.circle()
	if x.circle != nil {
		x.wrong(noCircle, "these steps lead to where they began")
		x.last = x.from[x.circle[0]]
	}
}
