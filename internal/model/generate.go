package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// Generate is n random commands; the same seed gives the same ones. They use
// few sessions, few paths, small numbers and whole seconds, so that they meet.
//
// A key or an attach without an epoch means the latest one of its session: the
// player of the commands fills it in (story.Runner does). noEpoch means none.
func Generate(seed uint64, n int) []table.Command { return generate(seed, n, paths) }

// GenerateBroad is Generate over a tree in which several paths are below one.
func GenerateBroad(seed uint64, n int) []table.Command { return generate(seed, n, broadPaths) }

func generate(seed uint64, n int, paths []lockkeeper.Path) []table.Command {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), paths: paths, sent: make(map[lockkeeper.Ref]lockkeeper.Want),
		last: make(map[string]uint64), ends: make(map[string]time.Duration), ttls: make(map[string]time.Duration),
		leases: make(map[string]uint64)}
	g.taste = tastes[g.IntN(len(tastes))]
	all := make([]table.Command, 0, n)
	for len(all) < n {
		at := g.time()
		c := g.command(all)
		c.At = at
		g.state(&c)
		g.follow(c)
		all = append(all, c)
	}
	return all
}

// taste is what one sequence has more of than others.
type taste struct {
	shared, permits int // of 100 targets
	steal, soft     int // of 100 claims
	nested, freezes int
	bounded         int
	acks            int // of 100 commands with a key
	large           int // number of large targets per 100 permits targets
}

var tastes = []taste{
	{shared: 30, permits: 30, steal: 25, soft: 10, nested: 30, freezes: 4, bounded: 30, acks: 30},
	{shared: 60, permits: 5, steal: 10, soft: 20, nested: 60, freezes: 3, bounded: 20},
	{shared: 10, permits: 80, steal: 40, nested: 40, freezes: 2, bounded: 20},
	{shared: 10, permits: 80, steal: 5, nested: 50, freezes: 5, bounded: 10},
	{shared: 30, permits: 10, steal: 5, soft: 5, nested: 80, freezes: 8, bounded: 5, acks: 10},
	{shared: 20, permits: 20, steal: 60, soft: 10, nested: 10, freezes: 4, bounded: 60, acks: 60},
	{shared: 30, permits: 20, steal: 70, nested: 10, freezes: 1, bounded: 10, acks: 20},
	{permits: 95, steal: 30, nested: 10, freezes: 1, bounded: 10, large: 95},
}

var (
	sessions = []string{"a", "b", "c", "d"}
	paths    = []lockkeeper.Path{"t", "t/u", "t/u/v", "w", "w/x"}

	broadPaths = []lockkeeper.Path{"t", "t/k", "t/k/l", "t/u", "t/u/v", "t/u/y", "t/z"}
)

type generator struct {
	*rand.Rand
	paths []lockkeeper.Path
	taste taste
	now   time.Duration
	sent  map[lockkeeper.Ref]lockkeeper.Want // the latest want of each claim
	refs  []lockkeeper.Ref                   // of the same, in order
	last  map[string]uint64                  // the latest id of each session
	ends  map[string]time.Duration           // until when each session lives, so far as is known here
	ttls  map[string]time.Duration

	leases map[string]uint64 // how many each session was given, at most
}

// percent is true in p of 100 cases.
func (g *generator) percent(p int) bool { return g.IntN(100) < p }

func (g *generator) pick(all ...time.Duration) time.Duration { return all[g.IntN(len(all))] }

// time mostly stands still; it goes by whole seconds, now and then by half ones.
func (g *generator) time() time.Duration {
	switch {
	case g.percent(65):
	case g.percent(3):
		return max(0, g.now-time.Second) // a command that comes late
	case g.percent(8):
		g.now += time.Second / 2
	case g.percent(4):
		g.now += 10 * time.Second
	default:
		g.now += time.Duration(1+g.IntN(3)) * time.Second
	}
	return g.now
}

// state has the key of c say, now and then, what is answered: mostly all, or nearly
// all, that was claimed, sometimes more than that; and what was heard: about the latest lease.
func (g *generator) state(c *table.Command) {
	session := c.Key.Session
	switch c.Op {
	case table.Renew, table.Claim, table.End:
		if g.percent(20) {
			c.Key.LowestOpen = g.last[session] + 2 - min(uint64(g.IntN(5)), g.last[session])
		}
		if g.percent(g.taste.acks) {
			c.Key.Acked = g.leases[session] - min(uint64(g.IntN(4)), g.leases[session])
		}
	}
}

// follow keeps roughly in mind which sessions are open.
func (g *generator) follow(c table.Command) {
	id := c.Key.Session
	switch {
	case c.Op == table.Attach:
		id = c.Session.ID
		g.ttls[id] = c.Session.TTL
		g.leases[id]++
		g.extend(id)
	case c.Op == table.Restart:
		g.ends = make(map[string]time.Duration)
	case c.Op == table.Renew && g.ends[id] > g.now:
		g.leases[id]++
		g.extend(id)
	case c.Op == table.Gone, c.Op == table.End && c.Ending.Kind == lockkeeper.Leave:
		g.ends[id] = 0
	}
}

func (g *generator) extend(id string) {
	g.ends[id] = forever
	if ttl := g.ttls[id]; ttl > 0 {
		g.ends[id] = g.now + ttl
	}
}

func (g *generator) command(before []table.Command) table.Command {
	session := sessions[g.IntN(len(sessions))]
	key := lockkeeper.Key{Session: session}
	if g.ends[session] <= g.now && g.percent(90) {
		return g.attach(session)
	}
	if g.percent(1) {
		key.Epoch = uint64(1 + g.IntN(5))
	}
	switch p := g.IntN(200); {
	case p < 6:
		return g.attach(session)
	case p < 26:
		return table.Command{Op: table.Renew, Key: key}
	case p < 30:
		return table.Command{Op: table.Pass}
	case p < 31:
		return table.Command{Op: table.Gone, Key: key}
	case p < 32:
		return table.Command{Op: table.Restart}
	case p < 40 && len(before) > 0:
		return before[g.IntN(len(before))] // it came twice
	case p < 80:
		return table.Command{Op: table.End, Key: key, Ending: g.ending(session)}
	case p < 115 && len(g.refs) > 0:
		return g.amendment()
	}
	g.last[session]++
	w := g.want(g.last[session])
	g.note(lockkeeper.Ref{Session: session, ID: w.ID}, w)
	return table.Command{Op: table.Claim, Key: key, Want: w}
}

func (g *generator) note(ref lockkeeper.Ref, w lockkeeper.Want) {
	if _, ok := g.sent[ref]; !ok {
		g.refs = append(g.refs, ref)
	}
	g.sent[ref] = w
}

// noEpoch is that of an attach that knows of none, as package story has it.
const noEpoch = math.MaxUint64

func (g *generator) attach(id string) table.Command {
	s := lockkeeper.Session{ID: id, TTL: g.pick(60, 30, 10, 5, 0, 0) * time.Second}
	switch p := g.IntN(100); {
	case p < 5:
		s.Epoch = noEpoch
	case p < 15:
		s.Epoch = uint64(1 + g.IntN(8)) // mostly one that is over
	}
	if g.IntN(200) == 0 {
		s.TTL = time.Millisecond // too short
	}
	for _, ref := range g.refs {
		if ref.Session == id && g.percent(5) {
			s.Lapsed = append(s.Lapsed, g.lapse(id, ref.ID))
		} else if ref.Session == id && g.percent(90) {
			s.Named = append(s.Named, ref.ID)
		}
	}
	return table.Command{Op: table.Attach, Session: s}
}

func (g *generator) ref() lockkeeper.Ref {
	if len(g.refs) == 0 || g.percent(3) {
		return lockkeeper.Ref{Session: sessions[g.IntN(len(sessions))], ID: 99}
	}
	return g.refs[max(g.IntN(len(g.refs)), g.IntN(len(g.refs)), g.IntN(len(g.refs)))] // rather a late one
}

// own is the id of a claim that session has, mostly.
func (g *generator) own(session string) uint64 {
	ref := g.ref()
	for try := 0; try < 20 && ref.Session != session; try++ {
		ref = g.ref()
	}
	return ref.ID
}

func (g *generator) ending(session string) lockkeeper.Ending {
	switch p := g.IntN(100); {
	case p < 2:
		return lockkeeper.Ending{Kind: lockkeeper.Leave}
	case p < 12:
		e := lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: g.ref(), Force: g.percent(40)}
		e.As = session
		return e
	case p < 12+g.taste.freezes*2:
		if g.percent(15) {
			return lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: lockkeeper.Root}
		}
		return lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: g.paths[g.IntN(len(g.paths))]}
	}
	if g.percent(25) {
		return lockkeeper.Ending{Kind: lockkeeper.Lapsed, Lapse: g.lapse(session, g.own(session))}
	}
	return lockkeeper.Ending{Kind: lockkeeper.Release, ID: g.own(session)}
}

// lapse makes a report with an end mostly near now, whether or not there is such an ask.
func (g *generator) lapse(session string, id uint64) lockkeeper.Lapse {
	reasons := [...]lockkeeper.Reason{
		lockkeeper.Stolen, lockkeeper.Overdue, lockkeeper.Revoked, lockkeeper.Expired, lockkeeper.Stolen,
	}
	end := max(0, g.now+time.Duration(g.IntN(5)-1)*time.Second)
	l := lockkeeper.Lapse{ID: id, Reason: reasons[g.IntN(len(reasons))], EndsAt: end}
	switch {
	case l.Reason == lockkeeper.Overdue && g.percent(50):
		l.EndsAt = 0
	case l.Reason == lockkeeper.Expired && g.ends[session] != forever && g.percent(70):
		l.EndsAt = g.ends[session]
	case g.percent(2):
		l.EndsAt += 1000 * time.Hour
	}
	return l
}

// want is a new claim or freeze.
func (g *generator) want(id uint64) lockkeeper.Want {
	if g.percent(g.taste.freezes) {
		w := lockkeeper.Want{ID: id, Freeze: g.pick(1, 3, 5, 20) * time.Second, Label: lockkeeper.Label{As: "op"}}
		for _, i := range g.Perm(len(g.paths))[:1+g.IntN(6)/5] {
			w.Targets = append(w.Targets, lockkeeper.Target{Path: g.paths[i], Mode: lockkeeper.ModeExclusive})
		}
		if g.percent(15) {
			w.Targets[0].Path = lockkeeper.Root
		}
		return w
	}
	w := lockkeeper.Want{ID: id, Targets: g.targets(), Priority: g.IntN(4) - 1, Wait: lockkeeper.Forever}
	if g.percent(60) {
		w.Priority = 0
	}
	if g.percent(g.taste.bounded) {
		w.Wait = g.pick(0, 1, 2, 3, 5, 9) * time.Second
	}
	if g.percent(g.taste.soft) {
		g.soften(&w)
	}
	if g.percent(g.taste.steal) && w.WriterPolicy == lockkeeper.Hard {
		w.Steal = lockkeeper.Ask
		if g.percent(60) {
			w.Steal, w.After = lockkeeper.Take, g.pick(0, 1, 2, 5, 30)*time.Second
			if g.percent(30) {
				w.After, w.AfterTTL = 0, int(g.pick(1, 333, 500, 1000))
			} else if g.percent(1) {
				w.After = lockkeeper.AfterMeasured
			}
		}
		w.Priority = max(w.Priority, g.IntN(3))
	}
	if g.percent(15) {
		w.MaxHold, w.Grace = g.pick(1, 3, 6)*time.Second, g.pick(0, 1, 2)*time.Second
	}
	if g.percent(15) {
		w.Expected = g.pick(1, 2, 4, 10) * time.Second
	}
	if g.percent(g.taste.nested) {
		w.Inside = g.outer()
	}
	if g.percent(1) {
		w.Targets[0].Units++ // invalid, or more than before
	}
	return w
}

// outer names a claim to be inside of: mostly a late one, which may be nested
// itself, sometimes one from the beginning or one that is yet to come.
func (g *generator) outer() lockkeeper.Ref {
	if g.percent(65) {
		return g.ref()
	}
	session := sessions[g.IntN(len(sessions))]
	ref := lockkeeper.Ref{Session: session, ID: uint64(1 + g.IntN(2))}
	if g.percent(40) {
		ref.ID = g.last[session] + uint64(g.IntN(3))
	}
	return ref
}

func (g *generator) soften(w *lockkeeper.Want) {
	w.WriterPolicy = lockkeeper.Soft
	for i := range w.Targets {
		w.Targets[i] = lockkeeper.Target{Path: w.Targets[i].Path, Mode: lockkeeper.ModeExclusive}
	}
	if g.percent(60) {
		w.Quiet = g.pick(1, 2, 4) * time.Second
	}
}

func (g *generator) targets() []lockkeeper.Target {
	n := 1
	for n < 3 && g.percent(25) {
		n++
	}
	var all []lockkeeper.Target
	for _, i := range g.Perm(len(g.paths))[:n] {
		all = append(all, g.target(g.paths[i]))
	}
	if g.percent(20) { // all of one mode, so that it can be converted
		for i := range all {
			all[i] = lockkeeper.Target{Path: all[i].Path, Mode: lockkeeper.ModeShared}
		}
	}
	return all
}

func (g *generator) target(path lockkeeper.Path) lockkeeper.Target {
	t := lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive}
	switch p := g.IntN(100); {
	case p < g.taste.shared:
		t.Mode = lockkeeper.ModeShared
	case p < g.taste.shared+g.taste.permits:
		t.Mode = lockkeeper.ModePermits
		t.Limit = 1 + g.IntN(5)
		t.Units = 1 + g.IntN(min(3, t.Limit))
		if g.taste.large > 0 && g.percent(g.taste.large) {
			t.Units = 1 << g.IntN(8)
			t.Limit = 300 + g.IntN(3)
		}
	}
	return t
}

// amendment changes an earlier want, mostly in a way that may be accepted.
func (g *generator) amendment() table.Command {
	ref := g.ref()
	for try := 0; try < 5 && g.percent(60) && !convertible(g.sent[ref]); try++ {
		ref = g.ref()
	}
	w, ok := g.sent[ref]
	if !ok || w.Freeze != 0 {
		return table.Command{Op: table.Pass}
	}
	w.Targets = slices.Clone(w.Targets)
	w.Revision++
	switch p := g.IntN(100); {
	case p < 20:
		w.Priority++
	case p < 40:
		for i := range w.Targets {
			if t := &w.Targets[i]; t.Mode == lockkeeper.ModePermits {
				t.Limit = max(t.Units, t.Limit+g.IntN(4)-1)
			}
		}
	case p < 85:
		g.flip(&w)
	case p < 90:
		g.flip(&w)
		w.Priority++
	case p < 92:
		w.Priority--
	case p < 94:
		w.Wait = g.pick(0, 2*time.Second, lockkeeper.Forever)
	case p < 96:
		w.Revision -= uint64(g.IntN(int(w.Revision) + 1))
		w.Expected++
	}
	if !g.percent(10) { // else the amendment is lost, and the next one is of the same revision
		g.sent[ref] = w
	}
	return table.Command{Op: table.Claim, Key: lockkeeper.Key{Session: ref.Session}, Want: w}
}

// convertible: all shared, or all exclusive.
func convertible(w lockkeeper.Want) bool {
	return len(w.Targets) > 0 && w.WriterPolicy == lockkeeper.Hard &&
		(all(w.Targets, lockkeeper.ModeShared) || all(w.Targets, lockkeeper.ModeExclusive))
}

// flip asks for the conversion that fits, with a wait of its own.
func (g *generator) flip(w *lockkeeper.Want) {
	to := lockkeeper.ModeExclusive
	if w.Targets[0].Mode == to {
		to = lockkeeper.ModeShared
	}
	for i := range w.Targets {
		if w.Targets[i].Mode != lockkeeper.ModePermits {
			w.Targets[i].Mode = to
		}
	}
	if g.percent(50) {
		w.Wait = g.pick(0, 1, 3, 5) * time.Second
	}
}
