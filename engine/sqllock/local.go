package sqllock

import (
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/attached"
	"github.com/lockkeeper/lockkeeper/internal/rows"
)

// local is what this process knows of its own sessions and claims. It is safe for
// concurrent use.
type local struct {
	mu       sync.Mutex
	sessions attached.Sessions[map[lockkeeper.Ref]bool]  // each with its claims in local.claims
	claims   map[lockkeeper.Ref]*ownClaim                // those that live, as far as is known here
	alarms   map[lockkeeper.Ref]*ownClaim                // those of them with a moment to look at them
	lines    map[lockkeeper.Path]map[lockkeeper.Ref]bool // those of them that wait, by where
	waiting  int

	// looksAfter is how long a claim waits until it is looked at: slowLook, but in tests of who is told.
	looksAfter time.Duration
}

// ownClaim is a claim that was made or seen here.
type ownClaim struct {
	targets []lockkeeper.Target
	waits   bool
	leaves  bool // its row may be gone: its own session has ended it
	change  uint64
	look    time.Time // when to look at what stands around it; zero if it does not wait
	bound   time.Time // when something becomes of it by itself; zero if nothing does
}

// kin is what claims have in common of which one look shows all: where they stand in
// line, and what may let them go before others there: a mode that a freeze allows, or a larger
// limit. A claim with several targets has no kin.
func (c *ownClaim) kin(ref lockkeeper.Ref) any {
	if len(c.targets) != 1 {
		return ref
	}
	t := c.targets[0]
	t.Units = 0
	return t
}

func newLocal() *local {
	return &local{
		looksAfter: slowLook,
		claims:     make(map[lockkeeper.Ref]*ownClaim),
		alarms:     make(map[lockkeeper.Ref]*ownClaim),
		lines:      make(map[lockkeeper.Path]map[lockkeeper.Ref]bool),
	}
}

// notify tells how a session is told, if it was attached here.
func (l *local) notify(session string) (notify func([]lockkeeper.Status), here bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sessions.Notify(session), l.sessions.Get(session) != nil
}

// epoch is that of a session that was attached here; 0 if it was not.
func (l *local) epoch(session string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.sessions.Get(session); a != nil {
		return a.Epoch
	}
	return 0
}

// shortestTTL is that of the sessions that are attached here, or the usual one.
func (l *local) shortestTTL() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	shortest := lockkeeper.DefaultTTL
	for _, a := range l.sessions.All() {
		shortest = min(shortest, a.TTL)
	}
	return shortest
}

// attach notes that a session is attached here.
func (l *local) attach(session string, epoch uint64, ttl time.Duration, notify func([]lockkeeper.Status)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	claims := make(map[lockkeeper.Ref]bool)
	if a := l.sessions.Get(session); a != nil {
		claims = a.Own
	}
	l.sessions.Put(session, &attached.Attachment[map[lockkeeper.Ref]bool]{
		Epoch:  epoch,
		Order:  epoch,
		TTL:    ttl,
		Until:  time.Now().Add(ttl + leaveDead),
		Notify: notify,
		Own:    claims,
	})
}

// renewed notes that a session lives on for so long.
func (l *local) renewed(session string, epoch uint64, left time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions.Renew(session, epoch, time.Now().Add(left+leaveDead))
}

// silent are sessions that were not renewed here within their TTL, some of them, with
// their epochs: they may have ended, or be attached elsewhere by now, without a word.
func (l *local) silent(now time.Time) map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	epochs := make(map[string]uint64)
	for id, a := range l.sessions.Expired(now) {
		if epochs[id] = a.Epoch; len(epochs) == mostSilent {
			break
		}
	}
	return epochs
}

// detach forgets a session, unless it was attached again meanwhile.
func (l *local) detach(session string, epoch uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.sessions.Remove(session, epoch); a != nil {
		for ref := range a.Own { // order does not matter
			l.forget(ref, l.claims[ref])
		}
	}
}

func (l *local) drop(ref lockkeeper.Ref, c *ownClaim) {
	l.forget(ref, c)
	delete(l.sessions.Get(ref.Session).Own, ref)
}

// forget is drop for a session that is not attached here any more.
func (l *local) forget(ref lockkeeper.Ref, c *ownClaim) {
	l.line(ref, c, false)
	delete(l.claims, ref)
	delete(l.alarms, ref)
}

// line notes whether a claim waits.
func (l *local) line(ref lockkeeper.Ref, c *ownClaim, waits bool) {
	if c.waits == waits {
		return
	}
	c.waits = waits
	if waits {
		l.waiting++
	} else {
		l.waiting--
	}
	for _, t := range c.targets {
		switch line := l.lines[t.Path]; {
		case waits && line == nil:
			l.lines[t.Path] = map[lockkeeper.Ref]bool{ref: true}
		case waits:
			line[ref] = true
		default:
			if delete(line, ref); len(line) == 0 {
				delete(l.lines, t.Path)
			}
		}
	}
}

// near are claims that are known to wait at these paths, some of them; long tells that
// somewhere many do, and apart that there it may be that they do not wait one after the other. To
// read at once what belongs to them saves a round trip.
func (l *local) near(paths map[lockkeeper.Path]bool, head int) (refs []lockkeeper.Ref, long, apart bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == 0 {
		return nil, false, false
	}
	for path := range paths { // order does not matter
		line := l.lines[path]
		if len(line) > head { // most of it is not read
			long, apart = true, apart || !l.oneWaitsAlone(path)
			continue
		}
		for ref := range line { // order does not matter
			refs = append(refs, ref)
		}
	}
	return refs, long, apart
}

// oneWaitsAlone reports whether one of those who wait for a path, any one, waits for it alone
// and for nothing else; l.mu is held.
func (l *local) oneWaitsAlone(path lockkeeper.Path) bool {
	for ref := range l.lines[path] {
		return waitsAlone(l.claims[ref].targets, path)
	}
	return false
}

// targets are those of a claim, if it is known here.
func (l *local) targets(ref lockkeeper.Ref) []lockkeeper.Target {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.claims[ref]; c != nil {
		return c.targets
	}
	return nil
}

// present is the latest change and the targets of a claim that should have a row; no targets
// if there is none.
func (l *local) present(ref lockkeeper.Ref) (change uint64, targets []lockkeeper.Target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.claims[ref]; c != nil && !c.leaves {
		return c.change, c.targets
	}
	return 0, nil
}

// leave notes that the rows of claims are about to be removed.
func (l *local) leave(refs []lockkeeper.Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ref := range refs {
		if c := l.claims[ref]; c != nil {
			c.leaves = true
		}
	}
}

// note notes what became of a claim of a session that is attached here.
func (l *local) note(st *lockkeeper.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.claims[st.Ref]
	if l.sessions.Get(st.Ref.Session) == nil || c != nil && c.change > st.Change {
		return
	}
	if st.State == lockkeeper.Ended || st.State == lockkeeper.Freezing {
		if c != nil {
			l.drop(st.Ref, c)
		}
		return
	}
	if c == nil {
		c = &ownClaim{}
		l.claims[st.Ref] = c
		l.sessions.Get(st.Ref.Session).Own[st.Ref] = true
		c.targets = make([]lockkeeper.Target, len(st.Grants))
		for i, g := range st.Grants {
			c.targets[i] = g.Target
		}
	}
	if st.Change > c.change {
		c.change, c.bound = st.Change, time.Time{}
	}
	if st.Left < lockkeeper.MaxDuration { // there may be a moment before, such as when it is overdue
		if at := time.Now().Add(st.Left + lookLate); c.bound.IsZero() || at.Before(c.bound) {
			c.bound = at
		}
	}
	waits := st.State == lockkeeper.Waiting || st.Converting
	switch {
	case waits && !c.waits:
		c.look = time.Now().Add(l.looksAfter)
	case !waits:
		c.look = time.Time{}
	}
	l.line(st.Ref, c, waits)
	l.alarm(st.Ref, c)
}

// alarm keeps account of the claims that have to be looked at.
func (l *local) alarm(ref lockkeeper.Ref, c *ownClaim) {
	if c.look.IsZero() && c.bound.IsZero() {
		delete(l.alarms, ref)
	} else {
		l.alarms[ref] = c
	}
}

// behind are the claims of this process that have changed since it was last told of them.
func (l *local) behind(found map[lockkeeper.Ref]*rows.Claim) (refs []lockkeeper.Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ref, row := range found { // order does not matter: sorted below
		if c := l.claims[ref]; c != nil && c.change < row.Change {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, compareRefs)
	return refs
}

// learn takes in what a transaction has found out about the claims of this process.
func (l *local) learn(tx *transaction) {
	for i := range tx.news.items {
		for j := range tx.news.items[i].statuses {
			l.note(&tx.news.items[i].statuses[j])
		}
	}
	for id, s := range tx.view.sessions { // order does not matter
		if s.process != tx.e.process && tx.attached[id].attempt == "" {
			l.detach(id, s.Epoch) // it was attached elsewhere
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	next := now.Add(l.looksAfter)
	if at, any := tx.table.Next(); any {
		next = minTime(next, now.Add(max(at-tx.now, 0)+lookLate))
	}
	learn := func(ref lockkeeper.Ref) {
		c := l.claims[ref]
		if c == nil {
			return
		}
		if at, any := tx.table.Due(ref); any {
			c.bound = now.Add(max(at-tx.now, 0) + lookLate)
		}
		if c.look = (time.Time{}); c.waits {
			c.look = next
		}
		l.alarm(ref, c)
	}
	for ref := range tx.view.claims { // order does not matter: each is noted by itself
		learn(ref)
	}
	for _, ref := range tx.begun { // it was not there to be read
		learn(ref)
	}
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// some are claims of these sessions, at most mostLooked of each; others the next time.
func (l *local) some(sessions map[string]bool) (refs []lockkeeper.Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range sessions { // order does not matter: sorted below
		if a := l.sessions.Get(id); a != nil {
			n := 0
			for ref := range a.Own { // and in no order, so that each has its turn
				if n++; n > mostLooked {
					break
				}
				refs = append(refs, ref)
			}
		}
	}
	slices.SortFunc(refs, compareRefs)
	return refs
}

// counts tells how many claims of this process wait, and how many there are.
func (l *local) counts() (waiting, all int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting, len(l.claims)
}

// due picks the claims to look at by now: those of which something becomes, and of
// those that wait one of each kin. It tells when to look again; zero if there is
// nothing to look at.
func (l *local) due(now time.Time) (refs []lockkeeper.Ref, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := make(map[any]bool)
	for ref, c := range l.alarms { // order does not matter: one of each kin will do
		over := !c.bound.IsZero() && !c.bound.After(now)
		if (over || !c.look.IsZero() && !c.look.After(now)) && len(refs) < mostLooks {
			if kin := c.kin(ref); over || !seen[kin] {
				seen[kin] = true
				refs = append(refs, ref)
			}
			c.look, c.bound = now.Add(l.looksAfter), time.Time{} // should nothing come of it
		}
		for _, at := range []time.Time{c.look, c.bound} {
			if !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return refs, next
}
