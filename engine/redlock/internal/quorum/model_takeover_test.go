package quorum

import (
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// attachesAgain has a client attach again while its session is open, as after the loss of a connection. It
// names the claims that it wants, and goes on with its holds meanwhile, until the end that it knows.
func (w *world) attachesAgain(p *process) {
	c := &p.client
	w.abandonAll(p)
	c.named = nil
	for _, x := range c.claims {
		if !x.over && !x.cancelled {
			c.named = append(c.named, x.id)
		}
	}
	now := p.time(w)
	c.renewing, c.returns, c.retryAt = true, true, never
	w.tell("p%d attaches %s again after epoch %d, naming %d", p.index, c.session, c.epoch, c.named)
	spec := lockkeeper.Session{ID: c.session, TTL: w.scope.ttl, Epoch: c.epoch, Named: c.named}
	c.begin(Attach, 0, p.party.Attach(now, spec), now)
	w.flush(p)
}

// replace has a process die and another one take its place, to which its client turns.
func (w *world) replace(p *process) {
	w.tell("p%d dies, and its client lives", p.index)
	kept := p.client
	for _, e := range w.wire {
		if e.process == p.index {
			e.dead = true
		}
	}
	w.sweep()
	kept.calls = nil
	w.open(p)
	p.client = kept
	w.attachesAgain(p)
}

// returned takes the lease of an Attach by attachesAgain: the engine has ended what was not named. A claim that it
// does not know is lost if it was held, and is sent again if it waits.
func (w *world) returned(p *process, l *lockkeeper.Lease) {
	c := &p.client
	c.returns = false
	listed := make(map[uint64]bool)
	for i := range l.Claims {
		listed[l.Claims[i].Ref.ID] = true
	}
	now := p.time(w)
	for _, x := range c.claims {
		switch {
		case x.over:
		case x.cancelled, x.held && !listed[x.id]:
			x.held, x.over = false, true
		case !x.held:
			if !listed[x.id] {
				x.change = 0 // the party makes it again, and counts its changes from the beginning
			}
			c.begin(Claim, x.id, p.party.Claim(now, c.key, x.want), now)
		}
	}
}

// TestPromisesHoldWhenSessionsMove runs random schedules in which clients attach again while their sessions
// are open, and processes die whose clients take their sessions to another one.
func TestPromisesHoldWhenSessionsMove(t *testing.T) {
	moving := func(sc *scope) {
		sc.moving, sc.broken = true, false
		sc.ppm = min(sc.ppm, 200) // as clocks of real machines; the other tests have clocks that differ more
	}
	seen := map[string]int{}
	for seed := range testmode.Seeds(t, testmode.Pick(400, 30_000)) {
		w, wrong := play(seed, bug{}, false, moving)
		if wrong != "" {
			w, _ = play(seed, bug{}, true, moving)
			story := w.story
			if most := 400; len(story) > most && strings.Contains(wrong, "no time has passed") {
				story = story[len(story)-most:]
			}
			t.Fatalf("%s\n%s\nreplay: %s\nin %+v", strings.Join(story, "\n"), wrong, testmode.Replay(t, seed), w.scope)
		}
		for what, n := range w.judge.seen {
			seen[what] += n
		}
		seen["steps"] += w.steps
	}
	t.Log(seen)
}
