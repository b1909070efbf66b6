package sqllock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/internal/watching"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/model"
	"github.com/lockkeeper/lockkeeper/internal/story"
	"github.com/lockkeeper/lockkeeper/table"
)

// sequences returns how many random sequences of commands a test plays.
func sequences() int { return testmode.Pick(30, 5000) }

// TestParts plays random commands on one table that knows everything, and on the
// transactions of two processes, of which each reads only what it needs. They must
// agree after each command: in the answer, and in every claim and session.
//
// In rows, a claim falls due only when a transaction reads it. So the test checks both states
// whenever something falls due. There are two kinds of checks, see world.look.
//
// With short prefixes the test checks both after each command, too, because claims beyond a blocked
// prefix are not checked before. The commands have no quiet periods and no nested claims then:
// these could involve claims beyond the prefix that block nothing.
//
// Where all claims of a long queue are exclusive, the test does not check: the claim that makes
// room grants the next one.
//
// They may differ in this: numbers have only the same order; the position and the estimate of a
// wait that times out count only the claims read; hold times may be older; and rows remember some
// ended claims for longer (see world.forgot).
func TestParts(t *testing.T) {
	for _, v := range []variant{
		{name: "usual", bounds: usual},
		{name: "looked at apart", bounds: usual, apart: true},
		{name: "short heads", bounds: bounds{prefix: 2, shortPrefix: 1, mostClaims: 3, latches: usual.latches}},
		{name: "whole tree", bounds: bounds{
			prefix:      usual.prefix,
			shortPrefix: usual.shortPrefix,
			mostClaims:  usual.mostClaims,
			latches:     3,
		}},
		{name: "all short", bounds: bounds{prefix: 2, shortPrefix: 1, mostClaims: 3, latches: 3}},
		{name: "long lines", bounds: bounds{prefix: 3, shortPrefix: 1, mostClaims: 3, latches: usual.latches}, alike: true},
	} {
		t.Run(v.name, func(t *testing.T) { v.run(t) })
	}
}

// variant is a way to play.
type variant struct {
	name   string
	bounds bounds
	apart  bool // each claim is looked at in a transaction of its own
	alike  bool // all claims are exclusive, and most of one path
}

const commandsOfSequence = 60

// short reports whether all queues are read as prefixes.
func (v variant) short() bool { return v.bounds.prefix < usual.prefix }

func (v variant) run(t *testing.T) {
	seeds := make(chan uint64)
	var found atomic.Bool
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for seed := range seeds {
				all := model.Generate(seed, commandsOfSequence)
				if v.alike {
					makeAlike(all)
				}
				if v.difference(seed, all) == "" || found.Swap(true) {
					continue
				}
				all = model.Shrink(all, func(c []table.Command) bool { return v.difference(seed, c) != "" })
				var told strings.Builder
				for _, c := range all {
					fmt.Fprintln(&told, story.Format(c))
				}
				t.Errorf("replay: %s\n\n%s\n%s", testmode.Replay(t, seed), v.difference(seed, all), told.String())
			}
		})
	}
	for seed := range testmode.Seeds(t, sequences()) {
		if found.Load() {
			break
		}
		seeds <- seed
	}
	close(seeds)
	wait.Wait()
}

// makeAlike makes all claims of commands exclusive, in two trees of which they mostly want one, so
// that they wait in long queues, in which no claim may pass another.
func makeAlike(all []table.Command) {
	for i := range all {
		c := &all[i]
		switch {
		case c.Op != table.Claim:
			continue
		case c.Want.Freeze != 0:
			*c = table.Command{Op: table.Pass, At: c.At}
			continue
		}
		t := lockkeeper.Target{Path: "t", Mode: lockkeeper.ModeExclusive}
		w := lockkeeper.Target{Path: "w", Mode: lockkeeper.ModeExclusive}
		if c.Want.ID%4 == 0 {
			t.Path = "t/u"
		}
		c.Want.Targets = []lockkeeper.Target{t}
		if c.Want.ID%8 == 1 {
			c.Want.Targets = append(c.Want.Targets, w)
		}
		c.Want.WriterPolicy, c.Want.Expected = lockkeeper.Hard, 0
	}
}

// difference plays a sequence, and says where the two first differ.
func (v variant) difference(seed uint64, all []table.Command) (diff string) {
	w := newWorld(seed, v)
	defer func() {
		if p := recover(); p != nil {
			stack := make([]byte, 8192)
			diff = fmt.Sprintf("%s\npanic: %v\n%s", w.last, p, stack[:runtime.Stack(stack, false)])
		}
	}()
	for len(all) > 0 {
		n := w.together(all)
		if diff := w.play(all[:n]); diff != "" {
			return w.last + "\n" + diff
		}
		all = all[n:]
	}
	return ""
}

// world is one state, kept twice.
type world struct {
	variant
	*rand.Rand
	whole   *table.Table
	runner  *story.Runner // fills in the epochs as the whole table has them
	rows    *memory
	engines []*Engine
	home    map[string]*Engine // where a session was attached last
	last    string             // the latest commands, for people

	unnoticed bool // something is due that parts of the state don't know of

	fences, tickets, epochs pairs
}

func newWorld(seed uint64, v variant) *world {
	m := newMemory()
	w := &world{
		variant: v,
		Rand:    rand.New(rand.NewPCG(seed, 1)),
		whole:   table.New(),
		rows:    m,
		home:    make(map[string]*Engine),
	}
	w.runner = story.New(w.whole, nil)
	w.fences.loose = true // who don't meet may be granted in any order
	for _, name := range []string{"p", "q"} {
		w.engines = append(w.engines, stillEngine(m, name, v.bounds))
	}
	return w
}

// stillEngine is an engine that does nothing by itself.
func stillEngine(m *memory, name string, b bounds) *Engine {
	e := &Engine{
		process:   name,
		dialect:   m,
		bounds:    b,
		local:     newLocal(),
		holdTimes: newHoldTimes(),
		work:      newQueue(),
		renewals:  newQueue(),
		wakeups:   newWakeups(),
	}
	e.closing, e.close = context.WithCancel(context.Background())
	e.cutting, e.cut = context.WithCancel(context.Background())
	e.poller = watching.NewPoller(e.closing, e.watchersRead)
	return e
}

// beginning is the time at which sequences begin: 0 means never in some places.
const beginning = time.Hour

// played is a command on its way.
type played struct {
	command table.Command // as the whole table gets it
	call    func() error  // as an engine gets it
	renews  bool
	refused bool // at the door
	e       *Engine
	lease   lockkeeper.Lease
	status  lockkeeper.Status
	err     error
}

// together is how many of the commands that come next are done in one transaction.
func (w *world) together(all []table.Command) int {
	if w.short() || w.IntN(3) > 0 {
		return 1
	}
	n, seen := 0, make(map[string]bool)
	for n < len(all) && n < 4 {
		c := all[n]
		if id := sessionOf(c); c.Op == table.Pass || c.Op == table.Gone || c.Op == table.Restart || seen[id] || n > 0 &&
			(c.At > all[0].At || (c.Op == table.Renew) != (all[0].Op == table.Renew) ||
				w.engineOf(id) != w.engineOf(sessionOf(all[0]))) {
			break
		} else {
			seen[id] = true
		}
		n++
	}
	return max(n, 1)
}

func sessionOf(c table.Command) string {
	if c.Op == table.Attach {
		return c.Session.ID
	}
	return c.Key.Session
}

func (w *world) engineOf(session string) *Engine {
	if e := w.home[session]; e != nil {
		return e
	}
	return w.engines[int(session[0])%len(w.engines)]
}

// play does commands on both, in one transaction, and tells how they differ then.
func (w *world) play(all []table.Command) string {
	w.last = ""
	for _, c := range all {
		w.last += "at " + story.Format(c) + "\n"
	}
	if diff := w.pass(all[0].At + beginning); diff != "" {
		return diff
	}
	switch all[0].Op {
	case table.Pass, table.Gone, table.Restart: // engines on a database do not use the last two
		return ""
	}
	var calls []*played
	for _, c := range all {
		c.At += beginning
		if w.short() {
			c.Want.Quiet, c.Want.Inside = 0, lockkeeper.Ref{}
		}
		p := w.prepare(w.runner.Complete(c))
		if p != nil && p.refused {
			if err := p.call(); !errors.Is(err, lockkeeper.ErrInvalid) {
				return fmt.Sprintf("the engine answers %v", err)
			}
		} else if p != nil {
			calls = append(calls, p)
		}
	}
	if len(calls) == 0 {
		return ""
	}
	w.do(calls)
	for _, p := range calls {
		reply, err := w.whole.Step(&p.command)
		w.runner.Learn(p.command, reply, err)
		if diff := w.differAnswer(p, reply, err); diff != "" {
			return diff
		}
	}
	w.settle()
	if w.short() && !w.alike {
		w.look()
	}
	return w.differ()
}

// pass lets time pass until at, and looks whenever something falls due.
func (w *world) pass(at time.Duration) string {
	for {
		due, any := w.whole.Next()
		if !any || due > at {
			break
		}
		w.last += fmt.Sprintf("(due at %s)\n", story.Duration(due-beginning))
		_, _ = w.whole.Step(&table.Command{Op: table.Pass, At: due})
		w.rows.now = due
		w.look()
		if diff := w.differ(); diff != "" {
			return diff
		}
	}
	w.rows.now = max(w.rows.now, at)
	_, _ = w.whole.Step(&table.Command{Op: table.Pass, At: w.rows.now})
	if w.IntN(20) == 0 {
		w.engines[w.IntN(2)].cleanUp()
		w.settle()
	}
	return ""
}

// look has all looked at that lives, in one transaction; or, as the watch does it, each
// claim and each session in one of its own, in any order.
func (w *world) look() {
	var dead []string
	for id, s := range w.rows.tables.sessions {
		if !s.Closed && s.Deadline <= w.rows.now {
			dead = append(dead, id)
		}
	}
	slices.Sort(dead)
	live := w.live()
	e := w.engines[w.IntN(2)]
	if !w.apart {
		e.spawn(func(s *scope) {
			for _, id := range dead {
				s.sessions[id], s.entire[id] = true, true
			}
			for _, ref := range live {
				s.refs[ref] = true
			}
			for path := range w.rows.tables.freezes {
				s.add([]lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}})
			}
		}, func(tx *transaction) { _, _ = tx.step(table.Command{Op: table.Pass}) })
		w.settle()
		return
	}
	var looks []func()
	for _, ref := range live {
		looks = append(looks, func() { w.engineOf(ref.Session).check([]lockkeeper.Ref{ref}) })
	}
	for _, id := range dead {
		looks = append(looks, func() { e.sweep(id) })
	}
	for _, path := range slices.Sorted(maps.Keys(w.rows.tables.freezes)) {
		looks = append(looks, func() {
			e.spawn(func(s *scope) { s.add([]lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}}) },
				func(tx *transaction) { _, _ = tx.step(table.Command{Op: table.Pass}) })
		})
	}
	w.Shuffle(len(looks), func(i, j int) { looks[i], looks[j] = looks[j], looks[i] })
	for _, look := range looks {
		look()
		w.settle()
	}
}

// live are the claims that wait or are held.
func (w *world) live() (refs []lockkeeper.Ref) {
	for ref, c := range w.rows.tables.claims {
		if c.ClaimRecord.State != lockkeeper.Ended {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, compareRefs)
	return refs
}

// settle runs the jobs that the engines have added themselves, until there are none.
func (w *world) settle() {
	for again := true; again; {
		again = false
		for _, e := range w.engines {
			jobs := e.work.Take(e.work.policy())
			if len(jobs) > 0 {
				again = true
				w.persist(e, e.work, jobs)
			}
		}
	}
}

// persist runs jobs in one transaction, as a worker does.
func (w *world) persist(e *Engine, q *queue, jobs []*job) {
	if parked := e.runJobs(jobs); len(parked) > 0 {
		w.rows.blame("%d jobs wait for a latch, and there is nobody else", len(parked))
	}
	q.finish(jobs, nil)
}

// do does calls in one transaction.
func (w *world) do(calls []*played) {
	var jobs []*job
	var q *queue
	var wait sync.WaitGroup
	for _, p := range calls {
		p.e = calls[0].e
		if q = p.e.work; p.renews {
			q = p.e.renewals
		}
		wait.Go(func() { p.err = p.call() })
		jobs = append(jobs, q.take()...)
	}
	if len(jobs) > 0 {
		w.persist(calls[0].e, q, jobs)
	}
	wait.Wait()
}
