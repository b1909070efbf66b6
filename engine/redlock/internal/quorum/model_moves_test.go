package quorum

import (
	"slices"
	"time"
)

// A move is a step of a world that its driver may choose.
type move struct {
	kind     moveKind
	process  int
	server   int
	envelope *envelope
}

type moveKind uint8

const (
	moveDeliver    moveKind = iota + 1 // the next envelope of a connection arrives
	moveTick                           // the party does what is due
	moveClientTick                     // the client does what is due
	moveConnect                        // a broken connection is made again
	moveRejoin                         // a server that lost its data takes a step back
	moveAdvance                        // time passes until the next thing is due

	// Faults.
	moveCut      // a connection breaks
	moveGhost    // a request of a broken connection is executed after all
	moveGhostTwo // and stays to be executed once more
	moveLose     // a server crashes, and loses its data
	moveCrash    // a server crashes, and keeps its data
	moveRestart
	moveFreeze  // a process pauses, or goes on
	moveReplace // a process dies, and its client turns to another one
	moveKill    // a process dies; another one takes its place
)

// prompt returns the moves that happen without a fault and without time passing.
func (w *world) prompt() []move {
	var moves []move
	for i, e := range w.wire {
		if !e.dead && e.life == w.processes[e.process].life && w.first(i) &&
			(e.request != nil || !w.processes[e.process].frozen) {
			moves = append(moves, move{kind: moveDeliver, envelope: e})
		}
	}
	for i, p := range w.processes {
		if p.frozen {
			continue
		}
		if next := p.party.Next(); next != 0 && next <= p.time(w) {
			moves = append(moves, move{kind: moveTick, process: i})
		}
		if w.clientDue(p) <= p.time(w) {
			moves = append(moves, move{kind: moveClientTick, process: i})
		}
		for k, m := range w.members {
			if !p.linked[k] && m.up && m.joined {
				moves = append(moves, move{kind: moveConnect, process: i, server: k})
			}
		}
	}
	return moves
}

// first reports whether no envelope of the same kind and connection is ahead of number i.
func (w *world) first(i int) bool {
	e := w.wire[i]
	for _, o := range w.wire[:i] {
		if o.process == e.process && o.life == e.life && o.server == e.server && !o.dead &&
			(o.request == nil) == (e.request == nil) && (o.message == nil) == (e.message == nil) {
			return false
		}
	}
	return true
}

// do takes one step, and judges the world after it.
func (w *world) do(m move) string {
	w.steps++
	for _, p := range w.processes {
		p.client.dropped = nil
	}
	var p *process
	if m.envelope == nil {
		p = w.processes[m.process]
	}
	switch m.kind {
	case moveDeliver, moveGhost:
		w.deliver(m.envelope, false)
	case moveGhostTwo:
		w.deliver(m.envelope, true)
	case moveTick:
		p.party.Tick(p.time(w))
		w.flush(p)
	case moveClientTick:
		w.clientTick(p)
	case moveConnect:
		w.connect(p, m.server)
		w.flush(p)
	case moveRejoin:
		w.rejoinStep(m.server, m.process)
	case moveAdvance:
		if next := w.nextDue(false); next > w.now {
			w.now = next
		}
	case moveCut:
		w.cut(p, m.server, false)
	case moveLose, moveCrash:
		w.crash(m.server, m.kind == moveLose)
	case moveRestart:
		w.restart(m.server)
	case moveFreeze:
		w.tell("p%d pauses: %t", m.process, !p.frozen)
		p.frozen = !p.frozen
	case moveReplace:
		w.replace(p)
	case moveKill:
		w.tell("p%d dies", m.process)
		w.kill(p)
	}
	return w.judge.check(w)
}

// kill ends the life of a process. Its requests may still be executed.
func (w *world) kill(p *process) {
	for _, e := range w.wire {
		if e.process == p.index {
			e.dead = true
		}
	}
	w.sweep()
	w.start(p)
}

// ghosts returns the requests of broken connections.
func (w *world) ghosts() []*envelope {
	var all []*envelope
	for _, e := range w.wire {
		if e.dead && e.request != nil {
			all = append(all, e)
		}
	}
	return all
}

// nextDue returns the earliest moment after now when something is due; 0 if there is none. With
// servers, the ends of sessions and asks at servers count too.
func (w *world) nextDue(servers bool) Micros {
	next := Micros(0)
	add := func(at Micros) {
		if at > w.now && (next == 0 || at < next) {
			next = at
		}
	}
	for _, p := range w.processes {
		if p.frozen {
			continue
		}
		for _, at := range []time.Duration{p.party.Next(), w.clientDue(p)} {
			if at != 0 && at != never {
				add(p.clock.when(Micros((at + time.Microsecond - 1) / time.Microsecond)))
			}
		}
	}
	for _, m := range w.members {
		if m.rejoin.until > 0 {
			add(m.clock.when(m.rejoin.until))
		}
		if servers {
			for _, at := range m.server.dues() {
				add(m.clock.when(at))
			}
		}
	}
	return next
}

// dues returns when something is due at the server.
func (s *Server) dues() []Micros {
	var all []Micros
	for _, e := range s.sessions {
		all = append(all, e.until)
		for _, c := range e.claims {
			for _, a := range c.asks {
				all = append(all, a.End)
			}
			all = append(all, c.lapseEnd)
		}
	}
	return slices.DeleteFunc(all, func(at Micros) bool { return at == 0 })
}
