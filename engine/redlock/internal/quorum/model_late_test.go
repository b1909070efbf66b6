package quorum

import (
	"strings"
	"testing"
	"time"
)

// countFromReply plants a bug: a promise counts from the moment when the party gets the reply, not from
// the sending of the request.
func countFromReply(w *world, p *process, e *envelope) { e.sent = p.time(w) }

// lateReplies has the replies to a renewal arrive 6 s late, when the client has already renewed again.
// They say nothing about that second renewal. The holder then stops for longer than its TTL, while
// another process waits. It returns the first broken promise.
//
//	holder    renew ─────────────── renew again, replies of the first ── stops
//	servers        executed ──────────────────────────── session ends, the next claim is granted
//	          0s                    6s                   10s
func lateReplies(b bug) (*world, string) {
	w := newWorld(simple(3, 2), b, func(int64) int64 { return 0 })
	w.told = true
	d := &directed{world: w}
	holder, next := w.processes[0], w.processes[1]
	d.settle()
	w.claim(holder, waits(), "a")
	d.settle()
	w.claim(next, waits(), "a")
	d.settle()
	w.renew(holder)
	w.flush(holder)
	holder.frozen = true // what is on its way to it waits, its requests are executed
	for end := w.now + micros(6*time.Second); w.now < end; {
		d.settle()
		d.do(move{kind: moveAdvance})
	}
	holder.frozen = false
	d.do(move{kind: moveClientTick, process: 0}) // the first call took too long
	for moves := w.repliesTo(0); len(moves) > 0; moves = w.repliesTo(0) {
		d.do(moves[0])
	}
	d.do(move{kind: moveFreeze, process: 0})
	for i := range w.members {
		d.do(move{kind: moveCut, process: 0, server: i})
	}
	for end := w.now + micros(8*time.Second); w.now < end; {
		d.settle()
		d.do(move{kind: moveAdvance})
	}
	if d.wrong == "" && !next.client.claims[0].held {
		return w, "the next claim is not granted after the holder's TTL"
	}
	return w, d.wrong
}

// repliesTo returns the moves that deliver the next replies to a process.
func (w *world) repliesTo(process int) (moves []move) {
	for i, e := range w.wire {
		if e.process == process && e.reply != nil && w.first(i) {
			moves = append(moves, move{kind: moveDeliver, envelope: e})
		}
	}
	return moves
}

// A promise counts from the sending of the request (see promise.go). Random schedules hardly ever
// show why: it takes replies that are slower than the client, and a pause right after them.
func TestLateRepliesPromiseNothing(t *testing.T) {
	if w, wrong := lateReplies(bug{}); wrong != "" {
		t.Errorf("%s\n%s", strings.Join(w.story, "\n"), wrong)
	}
	w, wrong := lateReplies(bug{onReply: countFromReply})
	if !strings.Contains(wrong, "act at once") {
		t.Errorf("%s\npromises that count from the reply are not found: %q", strings.Join(w.story, "\n"), wrong)
	}
	t.Logf("found: %s", wrong)
}
