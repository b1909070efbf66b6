package quorum

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// A dice drives a world at random.
type dice struct {
	*rand.Rand
	w      *world
	faults int // per 1000 steps
	users  int // per 1000 steps
	loss   bool
	lossy  bool // most faults are losses of data, and pauses
	slow   int  // time passes once in so many steps, whatever is due
	keep   int  // a hold is released once in so many chances

	instant Micros // of the latest step
	steps   int    // at that instant
}

// mostSteps bounds the steps at one instant. Messages take no time, so a party that asks a server again
// for what the server can't give never lets time pass.
const mostSteps = 20_000

// scopeOf returns the scope of a seed.
func scopeOf(r *rand.Rand) scope {
	sc := scope{
		servers:   []int{1, 3, 3, 3, 5, 5, 7}[r.IntN(7)],
		processes: 2 + r.IntN(5),
		paths:     []string{"a", "b", "c"}[:1+r.IntN(3)],
		ttl:       10 * time.Second,
		steals:    r.IntN(3) > 0,
		factor1:   r.IntN(2) == 0,
		many:      r.IntN(2) == 0,
		bounded:   r.IntN(2) == 0,
		claims:    4,
	}
	switch r.IntN(5) {
	case 0, 1, 2:
		sc.ppm = 9900
	case 3:
		sc.ppm, sc.broken = 600_000, true
	}
	return sc
}

// play runs the schedule of a seed: a number of steps with faults, and then without, until everything
// must be free. It returns the first broken promise.
func play(seed uint64, b bug, told bool, more func(*scope)) (*world, string) {
	r := rand.New(rand.NewPCG(seed, 1))
	sc := scopeOf(r)
	if more != nil {
		more(&sc)
	}
	d := &dice{Rand: r, faults: []int{0, 20, 60, 120}[r.IntN(4)], users: 60 + r.IntN(100), loss: r.IntN(2) == 0}
	d.slow, d.keep = []int{30, 30, 6}[r.IntN(3)], []int{1, 1, 30}[r.IntN(3)]
	d.lossy = d.loss && r.IntN(2) == 0 || sc.lossy
	w := newWorld(sc, b, r.Int64N)
	w.told = told
	d.w = w
	for range 200 + r.IntN(600) {
		if wrong := d.step(); wrong != "" {
			return w, wrong
		}
	}
	return w, d.heal()
}

func (d *dice) step() string {
	w := d.w
	if d.IntN(1000) < d.faults {
		return w.do(d.fault())
	}
	if d.IntN(1000) < d.users {
		d.use()
		w.steps++
		return w.judge.check(w)
	}
	if d.IntN(d.slow) == 0 {
		d.pass()
		return w.judge.check(w)
	}
	return d.advance()
}

// advance takes a step without a fault.
func (d *dice) advance() string {
	w := d.w
	for i := range w.members {
		if d.IntN(4) == 0 && w.rejoinStep(i, d.IntN(7)) {
			return w.judge.check(w)
		}
	}
	if w.now > d.instant {
		d.instant, d.steps = w.now, 0
	}
	if d.steps++; d.steps > mostSteps {
		return fmt.Sprintf("%d steps, and no time has passed", d.steps)
	}
	moves := w.prompt()
	if len(moves) == 0 {
		return w.do(move{kind: moveAdvance})
	}
	return w.do(moves[d.IntN(len(moves))])
}

// pass lets some time pass, whatever is due.
func (d *dice) pass() {
	d.w.now += Micros(d.Int64N([]int64{3000, 3000, 100_000, 1_000_000, 4_000_000}[d.IntN(5)]))
}

func (d *dice) fault() move {
	w := d.w
	server, process := d.IntN(len(w.members)), d.IntN(len(w.processes))
	m := w.members[server]
	out := 0
	for _, o := range w.members {
		if !o.joined {
			out++
		}
	}
	kind := d.IntN(8)
	if d.lossy && d.IntN(2) == 0 {
		kind = []int{4, 7}[d.IntN(2)]
	}
	switch kind {
	case 0, 1:
		if ghosts := w.ghosts(); len(ghosts) > 0 {
			return move{kind: moveGhost + moveKind(d.IntN(2)), envelope: ghosts[d.IntN(len(ghosts))]}
		}
	case 2, 3:
		if w.processes[process].linked[server] {
			return move{kind: moveCut, process: process, server: server}
		}
	case 4:
		return move{kind: moveFreeze, process: process}
	case 5:
		if d.IntN(4) == 0 {
			return move{kind: moveKill, process: process}
		}
		if c := &w.processes[process].client; w.scope.moving && c.open {
			return move{kind: moveReplace, process: process}
		}
	case 6:
		if m.up {
			m.server.ForgetIdle()
		}
	case 7:
		switch {
		case !m.up:
			return move{kind: moveRestart, server: server}
		case (d.loss || d.lossy) && m.joined && out < (len(w.members)-1)/2:
			return move{kind: moveLose, server: server}
		case m.joined:
			return move{kind: moveCrash, server: server}
		}
	}
	d.pass()
	return move{kind: moveAdvance}
}

// use lets a client claim, release, cancel or amend.
func (d *dice) use() {
	w := d.w
	p := w.processes[d.IntN(len(w.processes))]
	c := &p.client
	if !c.open || p.frozen || p.time(w) >= c.deadline {
		return
	}
	if w.scope.moving && d.IntN(10) == 0 {
		w.attachesAgain(p)
		return
	}
	var open []*wish
	for _, x := range c.claims {
		if !x.over && !x.cancelled {
			open = append(open, x)
		}
	}
	if len(open) < 2 && int(c.next) <= w.scope.claims {
		d.claim(p)
		return
	}
	if len(open) == 0 {
		return
	}
	x := open[d.IntN(len(open))]
	switch {
	case x.held && d.IntN(d.keep) > 0:
	case x.held || d.IntN(6) == 0:
		w.end(p, x)
	case d.IntN(4) == 0 && w.scope.steals && x.want.Wait != 0:
		x.want.Revision++
		x.want.Priority++
		w.tell("p%d raises the priority of %d to %d", p.index, x.id, x.want.Priority)
		c.begin(Claim, x.id, p.party.Claim(p.time(w), c.key, x.want), p.time(w))
		w.flush(p)
	}
}

func (d *dice) claim(p *process) {
	w := d.w
	want := lockkeeper.Want{Wait: lockkeeper.Forever}
	if w.scope.bounded {
		want.Wait = []time.Duration{0, time.Second, 20 * time.Second, lockkeeper.Forever}[d.IntN(4)]
	}
	if w.scope.steals {
		want.Priority = d.IntN(4)
		switch {
		case d.IntN(4) == 0:
			want.Steal = lockkeeper.Ask
		case d.IntN(4) > 0:
			want.Steal = lockkeeper.Take
			want.After = w.scope.ttl
			if !w.scope.factor1 {
				want.After = []time.Duration{0, w.scope.ttl / 10, w.scope.ttl / 2, w.scope.ttl}[d.IntN(4)]
			}
		}
	}
	paths := []string{w.scope.paths[d.IntN(len(w.scope.paths))]}
	if other := w.scope.paths[d.IntN(len(w.scope.paths))]; w.scope.many && other != paths[0] {
		paths = append(paths, other)
	}
	w.claim(p, want, paths...)
}

// heal ends all faults. Then every waiting claim is granted, all holds are released, and everything
// becomes free.
func (d *dice) heal() string {
	w := d.w
	w.tell("the faults stop")
	for i, m := range w.members {
		if !m.up {
			w.restart(i)
		}
	}
	for _, p := range w.processes {
		p.frozen = false
	}
	for ghosts := w.ghosts(); len(ghosts) > 0; ghosts = w.ghosts() {
		if wrong := w.do(move{kind: moveGhost, envelope: ghosts[d.IntN(len(ghosts))]}); wrong != "" {
			return wrong
		}
	}
	end := w.now + 12*micros(w.scope.ttl)
	for w.now < end {
		if wrong := d.advance(); wrong != "" {
			return wrong
		}
		if d.IntN(4) > 0 {
			continue
		}
		busy := false
		for _, p := range w.processes {
			for _, x := range p.client.claims {
				if x.held && !x.cancelled && p.client.open && p.time(w) < p.client.deadline {
					w.end(p, x)
				}
				busy = busy || !x.over
			}
		}
		if !busy && w.free() {
			return ""
		}
	}
	if w.scope.broken {
		return ""
	}
	return w.leftOver()
}

// free reports whether no server that takes part has a live claim.
func (w *world) free() bool { return w.leftOver() == "" }

func (w *world) leftOver() string {
	for _, p := range w.processes {
		for _, x := range p.client.claims {
			if !x.over {
				return fmt.Sprintf("%s is not over long after the faults stopped", x.ref(p))
			}
		}
	}
	for i, m := range w.members {
		if !m.joined {
			return fmt.Sprintf("server %d does not take part long after the faults stopped", i)
		}
		for _, e := range m.server.sessions {
			for _, c := range e.claims {
				if c.state != lockkeeper.Ended {
					return fmt.Sprintf("server %d has claim %s long after the faults stopped", i, c.ref)
				}
			}
		}
	}
	return ""
}

// TestPromisesHoldInRandomSchedules runs parties and servers through random schedules with lost,
// late and doubled messages, crashes with and without data, pauses, and clocks that differ.
func TestPromisesHoldInRandomSchedules(t *testing.T) {
	seen := map[string]int{}
	for seed := range testmode.Seeds(t, testmode.Pick(400, 30_000)) {
		w, wrong := play(seed, bug{}, false, nil)
		if wrong != "" {
			w, _ = play(seed, bug{}, true, nil)
			t.Fatalf("%s\n%s\nreplay: %s\nin %+v", strings.Join(w.story, "\n"), wrong, testmode.Replay(t, seed), w.scope)
		}
		for what, n := range w.judge.seen {
			seen[what] += n
		}
		seen["steps"] += w.steps
	}
	t.Log(seen)
}
