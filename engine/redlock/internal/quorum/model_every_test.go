package quorum

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// An every runs every schedule of a small world: each choice of the next step is taken once in each
// state. Two states with one fingerprint go on in the same way, so the second is left out.
//
// Connections are made again only when nothing is on its way, and time passes only then, up to what is
// due next. A leap is the exception: at any moment, to just before or just after the end of the first
// session at a server, whatever is due, as if all processes had paused.
type every struct {
	budget
	scope  scope
	bug    bug
	wants  []lockkeeper.Want // of one claim of each process
	cancel bool              // clients may cancel their waits
	apart  bool              // process i never reaches server i
	most   int               // states

	seen    map[uint64]bool
	choices []choice // from the start to the present state
}

// A budget bounds the steps of which there could be any number.
type budget struct {
	cuts   int // broken connections: a request is lost, or late, or its reply is lost
	twice  int // late requests that are executed twice
	crash  int // servers that start again with their data
	lose   int // and without
	leaps  int
	pauses int // times that nothing happens until something is due
}

// A choice is a move, with the place of its envelope in the wire.
type choice struct {
	move
	at     int
	leap   Micros // time passes until this moment
	finish bool   // the client of the process releases or cancels its claim
	left   budget
}

// start returns the world at the moment when every process has claimed.
func (e *every) start(told bool) *world {
	w := newWorld(e.scope, e.bug, func(int64) int64 { return 0 })
	w.told = told
	for i, p := range w.processes {
		if e.apart {
			w.cut(p, i, false)
		}
	}
	for moves := e.prompt(w); len(moves) > 0; moves = e.prompt(w) {
		w.do(moves[0])
	}
	for i, p := range w.processes {
		if i < len(e.wants) {
			w.claim(p, e.wants[i], "a")
		}
	}
	return w
}

// prompt returns the moves without a fault between those that reach each other.
func (e *every) prompt(w *world) []move {
	return slices.DeleteFunc(w.prompt(), func(m move) bool {
		return e.apart && m.kind == moveConnect && m.process == m.server
	})
}

// run explores, and returns the first broken promise.
func (e *every) run() (wrong string) {
	e.seen, e.choices = map[uint64]bool{}, nil
	return e.explore(e.start(false), e.budget)
}

func (e *every) explore(w *world, left budget) string {
	print := w.fingerprint(left.cuts, left.twice, left.crash, left.lose, left.leaps, left.pauses)
	if e.seen[print] || e.most > 0 && len(e.seen) >= e.most {
		return ""
	}
	e.seen[print] = true
	choices := e.next(w, left)
	for i := range choices {
		twin := w
		if i < len(choices)-1 {
			twin = w.clone()
		}
		e.choices = append(e.choices, choices[i])
		if wrong := e.take(twin, &choices[i]); wrong != "" {
			return wrong
		}
		if wrong := e.explore(twin, choices[i].left); wrong != "" {
			return wrong
		}
		e.choices = e.choices[:len(e.choices)-1]
	}
	return ""
}

func (e *every) take(w *world, c *choice) string {
	if c.leap > 0 {
		w.now = c.leap
		w.tell("time leaps")
		return w.judge.check(w)
	}
	if c.finish {
		for _, p := range w.processes {
			p.client.dropped = nil
		}
		p := w.processes[c.process]
		w.steps++
		w.end(p, p.client.claims[0])
		return w.judge.check(w)
	}
	m := c.move
	if c.at >= 0 {
		m.envelope = w.wire[c.at]
	}
	return w.do(m)
}

// next returns the choices in a state.
func (e *every) next(w *world, left budget) []choice {
	var all []choice
	add := func(m move, left budget) {
		at := -1
		if m.envelope != nil {
			at = slices.Index(w.wire, m.envelope)
			m.envelope = nil
		}
		all = append(all, choice{move: m, at: at, left: left})
	}
	var connects []move
	for _, m := range e.prompt(w) {
		if m.kind == moveConnect {
			connects = append(connects, m)
			continue
		}
		add(m, left)
	}
	for i, m := range w.members {
		if !m.up {
			connects = append(connects, move{kind: moveRestart, server: i})
		}
	}
	if len(all) == 0 {
		for _, m := range connects {
			add(m, left)
		}
	}
	quiet := len(all) == 0
	open := false
	for i, p := range w.processes {
		for _, x := range p.client.claims {
			open = open || !x.over
			if !x.over && !x.cancelled && p.client.open && p.time(w) < p.client.deadline && (x.held || e.cancel) {
				all = append(all, choice{move: move{process: i}, finish: true, left: left})
			}
		}
	}
	if !open && len(w.ghosts()) == 0 {
		return nil
	}
	if quiet && left.pauses > 0 {
		left := left
		left.pauses--
		add(move{kind: moveAdvance}, left)
	}
	e.faults(w, left, add)
	if left.leaps > 0 {
		left := left
		left.leaps--
		for _, at := range w.sessionEnds() {
			all = append(all, choice{leap: at, left: left})
		}
	}
	return all
}

func (e *every) faults(w *world, left budget, add func(move, budget)) {
	for _, g := range w.ghosts() {
		add(move{kind: moveGhost, envelope: g}, left)
		if left.twice > 0 {
			fewer := left
			fewer.twice--
			add(move{kind: moveGhostTwo, envelope: g}, fewer)
		}
	}
	for i, p := range w.processes {
		for k := range w.members {
			busy := slices.ContainsFunc(w.wire, func(o *envelope) bool {
				return o.process == i && o.server == k && !o.dead
			})
			if left.cuts > 0 && busy && p.linked[k] {
				fewer := left
				fewer.cuts--
				add(move{kind: moveCut, process: i, server: k}, fewer)
			}
		}
	}
	for k, m := range w.members {
		if left.crash > 0 && m.up && m.joined {
			fewer := left
			fewer.crash--
			add(move{kind: moveCrash, server: k}, fewer)
		}
		if left.lose > 0 && m.up && m.joined {
			fewer := left
			fewer.lose--
			add(move{kind: moveLose, server: k}, fewer)
		}
		if m.rejoin.active && m.up && w.clone().rejoinStep(k, 0) {
			add(move{kind: moveRejoin, server: k}, left)
		}
	}
}

// sessionEnds returns the moments just before and at the first end of a session at a server.
func (w *world) sessionEnds() []Micros {
	first := Micros(0)
	for _, m := range w.members {
		for _, s := range m.server.sessions {
			if at := m.clock.when(s.until); at > w.now+1000 && (first == 0 || at < first) {
				first = at
			}
		}
	}
	if first == 0 {
		return nil
	}
	return []Micros{first - 1000, first}
}

// tale returns the story of the present choices.
func (e *every) tale() string {
	w := e.start(true)
	for i := range e.choices {
		e.take(w, &e.choices[i])
	}
	return strings.Join(w.story, "\n")
}

// simple returns a scope of one path, with clocks that agree.
func simple(servers, processes int) scope {
	return scope{
		servers: servers, processes: processes, paths: []string{"a"}, ttl: 10 * time.Second, factor1: true, claims: 1,
	}
}

func waits() lockkeeper.Want { return lockkeeper.Want{Wait: lockkeeper.Forever} }

func thief() lockkeeper.Want {
	return lockkeeper.Want{Wait: lockkeeper.Forever, Priority: 1, Steal: lockkeeper.Take, After: 10 * time.Second}
}

type smallWorld struct {
	name string
	long bool
	every
}

func smallWorlds() []smallWorld {
	two := []lockkeeper.Want{waits(), waits()}
	robbed := []lockkeeper.Want{waits(), thief()}
	return []smallWorld{
		{"one server, waits may be cancelled", false, every{
			scope: simple(1, 2), wants: two, cancel: true, budget: budget{pauses: 1},
		}},
		{"one server, a connection breaks", false, every{
			scope: simple(1, 2), wants: two, budget: budget{cuts: 1, pauses: 1},
		}},
		{"one server, a late request is executed twice", true, every{
			scope: simple(1, 2), wants: two, cancel: true, budget: budget{cuts: 1, twice: 1, pauses: 1},
		}},
		{"one server, time leaps", true, every{
			scope: simple(1, 2), wants: two, budget: budget{leaps: 1, pauses: 1},
		}},
		{"one server, a thief", true, every{
			scope: simple(1, 2), wants: robbed, budget: budget{pauses: 2}, most: largest,
		}},
		{"three servers, each process reaches two", true, every{
			scope: simple(3, 2), wants: two, apart: true, budget: budget{pauses: 1}, most: largest,
		}},
		{"three servers, a server loses its data", true, every{
			scope: simple(3, 2), wants: two, budget: budget{lose: 1, pauses: 1}, most: largest,
		}},
	}
}

// largest bounds the states of a world that is too large to be explored to its end.
const largest = 50_000

// TestPromisesHoldInEverySchedule runs every schedule of small worlds.
func TestPromisesHoldInEverySchedule(t *testing.T) {
	for _, s := range smallWorlds() {
		t.Run(s.name, func(t *testing.T) {
			if s.long {
				testmode.NeedLong(t, "it has many states; random schedules have the same faults")
			}
			if wrong := s.run(); wrong != "" {
				t.Fatalf("%s\n%s", s.tale(), wrong)
			}
			if len(s.seen) == s.most {
				t.Logf("the first %d states, not all", len(s.seen))
				return
			}
			t.Logf("all %d states", len(s.seen))
		})
	}
}

// TestEveryScheduleShowsPlantedBugs plants bugs, to see that the exploration finds them.
func TestEveryScheduleShowsPlantedBugs(t *testing.T) {
	two := []lockkeeper.Want{waits(), waits()}
	robbed := []lockkeeper.Want{waits(), thief()}
	for _, s := range []smallWorld{
		{"a minority grants", false, every{
			scope: simple(3, 2), wants: two, apart: true,
			bug: bug{party: func(p *Party) { p.majority = max(1, p.n/2) }},
		}},
		{"a steal overwrites the record at once", false, every{
			scope: simple(1, 2), wants: robbed, bug: bug{apply: stealAtOnce},
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			s.most = 1000
			wrong := s.run()
			if wrong == "" {
				t.Fatalf("not found in %d states", len(s.seen))
			}
			t.Logf("found after %d states: %s", len(s.seen), wrong)
			s.bug = bug{}
			if wrong := s.run(); wrong != "" {
				t.Errorf("without the bug, too: %s\n%s", wrong, s.tale())
			}
		})
	}
}

// TestCopiedWorldGoesOnAlike takes random choices in copies of copies, and in a world from the start.
func TestCopiedWorldGoesOnAlike(t *testing.T) {
	r := testmode.Rand(t)
	for range 20 {
		e := every{
			scope: simple(3, 2), wants: []lockkeeper.Want{waits(), thief()}, cancel: true,
			budget: budget{2, 1, 1, 1, 2, 5},
		}
		copied, straight, left := e.start(false), e.start(false), e.budget
		for range 60 {
			choices := e.next(copied, left)
			if len(choices) == 0 {
				break
			}
			c := &choices[r.IntN(len(choices))]
			before := copied
			copied = before.clone()
			left = c.left
			one, two := e.take(copied, c), e.take(straight, c)
			if one != two || copied.fingerprint() != straight.fingerprint() {
				t.Fatalf("after %+v the copy differs: %q and %q", *c, one, two)
			}
		}
	}
}
