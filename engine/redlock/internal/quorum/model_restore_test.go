package quorum

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// lateRestore has a Restore arrive after the hold that it restores was released, at a server that has
// voted for the next claim meanwhile. It returns the first broken promise.
//
//	server 0   first holds ─────────────── releases ── vote for third
//	server 1   first holds ─────────────── releases ── vote for next ──┐ next holds
//	server 2   loses its data   vote for next ─────────────────────────┘   Restore of first, and its end
//
// If the Restore took the vote of next, the end would give it to third: a second holder.
func lateRestore(b bug) (*world, string) {
	w := newWorld(simple(3, 3), b, func(int64) int64 { return 0 })
	w.told = true
	d := &directed{world: w}
	first, next, third := w.processes[0], w.processes[1], w.processes[2]
	d.settle()
	w.claim(first, waits(), "a")
	d.settle()
	d.do(move{kind: moveLose, server: 2})
	d.do(move{kind: moveRestart, server: 2})
	d.apart = [][2]int{{0, 2}, {1, 2}, {2, 2}}
	for !w.members[2].joined {
		d.settle()
		if !w.rejoinStep(2, 0) {
			d.do(move{kind: moveAdvance})
		}
	}
	d.do(move{kind: moveConnect, process: 0, server: 2})
	restores := func(e *envelope) bool {
		return e.process == 0 && e.server == 2 && e.request != nil && e.request.Kind == Restore
	}
	for !slices.ContainsFunc(w.wire, restores) {
		at := slices.IndexFunc(w.wire, func(e *envelope) bool { return e.process == 0 && e.server == 2 })
		if at < 0 {
			return w, "the holder does not restore its hold"
		}
		d.do(move{kind: moveDeliver, envelope: w.wire[at]})
	}
	d.do(move{kind: moveCut, process: 0, server: 2}) // the Restore is on its way
	d.do(move{kind: moveCut, process: 1, server: 0})
	d.apart = [][2]int{{0, 2}, {1, 0}}
	d.settle()
	w.claim(next, waits(), "a")
	d.settle()
	w.claim(third, waits(), "a")
	d.settle()
	w.end(first, first.client.claims[0])
	d.settle()
	for end := w.now + micros(2*time.Second); w.now < end && !next.client.claims[0].held; {
		d.do(move{kind: moveAdvance})
		d.settle()
	}
	if !next.client.claims[0].held {
		return w, "the next claim is not granted"
	}
	d.apart = append(d.apart, [2]int{1, 2})
	d.do(move{kind: moveCut, process: 1, server: 2}) // it hears nothing more of server 2
	late := slices.IndexFunc(w.wire, restores)
	d.do(move{kind: moveGhost, envelope: w.wire[late]})
	d.apart = slices.DeleteFunc(d.apart, func(pair [2]int) bool { return pair == [2]int{0, 2} })
	for end := w.now + micros(2*time.Second); w.now < end; {
		d.settle()
		d.do(move{kind: moveAdvance})
	}
	return w, d.wrong
}

// directed drives a world through a schedule of a test's own.
type directed struct {
	*world
	apart [][2]int // processes and servers whose connections are not made again
	wrong string   // the first broken promise
}

// do takes a step.
func (d *directed) do(m move) {
	if found := d.world.do(m); d.wrong == "" {
		d.wrong = found
	}
}

// settle lets everything happen that happens without a fault and without time passing.
func (d *directed) settle() {
	for {
		moves := slices.DeleteFunc(d.prompt(), func(m move) bool {
			return m.kind == moveConnect && slices.Contains(d.apart, [2]int{m.process, m.server})
		})
		if len(moves) == 0 {
			return
		}
		d.do(moves[0])
	}
}

// Condition 3: a Restore sets a record only where no other claim has the vote. Random schedules hardly
// ever show why.
func TestLateRestoreTakesNoVote(t *testing.T) {
	if w, wrong := lateRestore(bug{}); wrong != "" {
		t.Errorf("%s\n%s", strings.Join(w.story, "\n"), wrong)
	}
	w, wrong := lateRestore(bug{apply: restoreOver})
	if !strings.Contains(wrong, "act at once") {
		t.Errorf("%s\na Restore over another hold is not found: %q", strings.Join(w.story, "\n"), wrong)
	}
	t.Logf("found: %s", wrong)
}
