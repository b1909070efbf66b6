package quorum

import "slices"

// rejoin is how a server that lost its data comes back (condition 2):
//
//	lost ── its new generation at a majority R of others (barrier) ──> fenced
//	fenced ── the longest session and the floor of each of R ──> waits for the longest, by its own clock
//	waits ── that has passed ──> it takes the highest floor, and takes part again
//
// Each contact with a member of R is a step of its own.
type rejoin struct {
	active  bool
	fenced  []int // the members of R that have the new generation
	asked   []int // those that stated sessions and floor after the barrier was complete
	longest Micros
	floor   uint64
	until   Micros // on the clock of the server; 0: not known yet
}

// crash stops a server. If it loses its data, it starts again empty, and stays out.
func (w *world) crash(i int, lose bool) {
	m := w.members[i]
	w.tell("server %d crashes, loses its data: %t", i, lose)
	m.up = false
	if lose {
		generation := m.vector[i] + 1
		m.server = NewServer(Limits{})
		m.vector = make([]uint64, w.scope.servers)
		m.vector[i] = generation
		m.joined = false
		m.rejoin = rejoin{active: true}
	}
	for _, p := range w.processes {
		w.cut(p, i, false)
	}
}

// restart lets a crashed server run again.
func (w *world) restart(i int) {
	w.tell("server %d runs again", i)
	w.members[i].up = true
}

// whole returns the other members that run and lost nothing.
func (w *world) whole(i int) []int {
	var all []int
	for k, m := range w.members {
		if k != i && m.up && m.joined {
			all = append(all, k)
		}
	}
	return all
}

// sources is how many servers a lost one has to ask.
func (w *world) sources() int {
	if w.bug.few {
		return w.scope.servers / 2
	}
	return w.scope.servers/2 + 1
}

// rejoinStep does the next step of the return of server i, if there is one. k chooses a member.
func (w *world) rejoinStep(i, k int) bool {
	m := w.members[i]
	r := &m.rejoin
	if !r.active || !m.up {
		return false
	}
	switch {
	case len(r.fenced) < w.sources():
		for _, s := range rotate(w.whole(i), k) {
			if slices.Contains(r.fenced, s) {
				continue
			}
			w.tell("server %d tells server %d its generation %d", i, s, m.vector[i])
			other := w.members[s]
			for g := range m.vector {
				m.vector[g] = max(m.vector[g], other.vector[g])
				other.vector[g] = m.vector[g]
			}
			r.fenced = append(r.fenced, s)
			return true
		}
		return false
	case len(r.asked) < len(r.fenced):
		for _, s := range rotate(r.fenced, k) {
			other := w.members[s]
			if slices.Contains(r.asked, s) {
				continue
			}
			if !other.joined { // it lost its data itself: begin again
				*r = rejoin{active: true}
				return true
			}
			if !other.up {
				continue
			}
			longest, floor := other.server.Promises(other.clock.at(w.now))
			w.tell("server %d learns of server %d: sessions until %d from now, floor %d", i, s, longest, floor)
			r.asked = append(r.asked, s)
			r.longest, r.floor = max(r.longest, longest), max(r.floor, floor)
			return true
		}
		return false
	case r.until == 0:
		r.until = m.clock.at(w.now) + r.longest + r.longest/100 + 20_000
		if w.bug.noWait {
			r.until = 1
		}
		return true
	}
	return w.finishRejoin(i)
}

func (w *world) finishRejoin(i int) bool {
	m := w.members[i]
	if m.clock.at(w.now) < m.rejoin.until {
		return false
	}
	if !w.bug.noFloor {
		m.server.RaiseFloor(m.rejoin.floor)
	}
	w.tell("server %d takes part again", i)
	m.joined, m.rejoin = true, rejoin{}
	return true
}

func rotate(all []int, k int) []int {
	if len(all) == 0 {
		return nil
	}
	k %= len(all)
	return append(slices.Clone(all[k:]), all[:k]...)
}
