package sqllock

import (
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/attached"
	"github.com/lockkeeper/lockkeeper/internal/rows"
)

// local is what this process knows of its own sessions and claims. It is safe for concurrent use.
type local struct {
	mu       sync.Mutex
	sessions attached.Sessions[map[lockkeeper.Ref]bool]  // each with its claims in local.claims; see nextTurn
	claims   map[lockkeeper.Ref]*ownClaim                // not ended, as far as is known here
	alarms   map[lockkeeper.Ref]*ownClaim                // claims with a time to check them
	queues   map[lockkeeper.Path]map[lockkeeper.Ref]bool // waiting claims by path
	waiting  int
	suspects map[string]bool // sessions that miss rows

	// checkAfter is how long a claim waits until this process checks it: checkEvery, except in
	// tests of wakeups.
	checkAfter time.Duration
}

// ownClaim is a claim of a session that is attached here.
type ownClaim struct {
	targets  []lockkeeper.Target
	waits    bool
	removing bool // its row may be gone, because its own session ended it
	change   uint64
	check    time.Time // when to check whether it can be granted; zero if it does not wait
	bound    time.Time // when something falls due for it; zero if nothing does
}

// waitClass returns the key of a class of claims: they wait at the same path, in the same mode and
// with the same limit, so a check of one of them serves all. A claim with several targets is a
// class of its own.
func (c *ownClaim) waitClass(ref lockkeeper.Ref) any {
	if len(c.targets) != 1 {
		return ref
	}
	t := c.targets[0]
	t.Units = 0
	return t
}

func newLocal() *local {
	return &local{
		checkAfter: checkEvery,
		claims:     make(map[lockkeeper.Ref]*ownClaim),
		alarms:     make(map[lockkeeper.Ref]*ownClaim),
		queues:     make(map[lockkeeper.Path]map[lockkeeper.Ref]bool),
		suspects:   make(map[string]bool),
	}
}

// notify returns the function to notify of changes of a session, and whether it is attached here.
func (l *local) notify(session string) (notify func([]lockkeeper.Status), here bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sessions.Notify(session), l.sessions.Get(session) != nil
}

// epoch returns the epoch of a session; 0 if it is not attached here.
func (l *local) epoch(session string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.sessions.Get(session); a != nil {
		return a.Epoch
	}
	return 0
}

// shortestTTL returns the shortest TTL of the sessions attached here, at most the default.
func (l *local) shortestTTL() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	shortest := lockkeeper.DefaultTTL
	for _, a := range l.sessions.All() {
		shortest = min(shortest, a.TTL)
	}
	return shortest
}

// attach records that a session is attached here.
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

// renewed records that a session lives for the duration left from now.
func (l *local) renewed(session string, epoch uint64, left time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions.Renew(session, epoch, time.Now().Add(left+leaveDead))
}

// expired returns sessions that were not renewed here within their TTL, at most mostExpired, with
// their epochs. They may have ended, or be attached elsewhere.
func (l *local) expired(now time.Time) map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	epochs := make(map[string]uint64)
	for id, a := range l.sessions.Expired(now) {
		if epochs[id] = a.Epoch; len(epochs) == mostExpired {
			break
		}
	}
	return epochs
}

// detach removes a session and its claims, unless it was attached again since.
func (l *local) detach(session string, epoch uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.sessions.Remove(session, epoch); a != nil {
		for ref := range a.Own { // order does not matter
			l.forget(ref, l.claims[ref])
		}
		delete(l.suspects, session)
	}
}

// drop removes a claim.
func (l *local) drop(ref lockkeeper.Ref, c *ownClaim) {
	l.forget(ref, c)
	delete(l.sessions.Get(ref.Session).Own, ref)
}

// forget removes a claim of a session that is already removed.
func (l *local) forget(ref lockkeeper.Ref, c *ownClaim) {
	l.setWaiting(ref, c, false)
	delete(l.claims, ref)
	delete(l.alarms, ref)
}

// setWaiting records whether a claim waits.
func (l *local) setWaiting(ref lockkeeper.Ref, c *ownClaim, waits bool) {
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
		switch queue := l.queues[t.Path]; {
		case waits && queue == nil:
			l.queues[t.Path] = map[lockkeeper.Ref]bool{ref: true}
		case waits:
			queue[ref] = true
		default:
			if delete(queue, ref); len(queue) == 0 {
				delete(l.queues, t.Path)
			}
		}
	}
}

// nearby returns locally known waiters on paths, so that the first read includes the claims nested
// in them. long: a queue exceeds the prefix. concurrent: that queue may admit several claims at
// once.
func (l *local) nearby(paths map[lockkeeper.Path]bool, prefix int) (refs []lockkeeper.Ref, long, concurrent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queues) == 0 {
		return nil, false, false
	}
	for path := range paths { // order does not matter
		queue := l.queues[path]
		if len(queue) > prefix { // most of them are not read
			long, concurrent = true, concurrent || !l.waitExclusively(path)
			continue
		}
		for ref := range queue { // order does not matter
			refs = append(refs, ref)
		}
	}
	return refs, long, concurrent
}

// waitExclusively takes any one of the waiters on path, and reports whether it waits for path
// exclusively and for nothing else. It is a guess about the whole queue. The caller holds l.mu.
func (l *local) waitExclusively(path lockkeeper.Path) bool {
	for ref := range l.queues[path] {
		return waitsExclusively(l.claims[ref].targets, path)
	}
	return false
}

// targets returns the targets of a claim; none if it is not known here.
func (l *local) targets(ref lockkeeper.Ref) []lockkeeper.Target {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.claims[ref]; c != nil {
		return c.targets
	}
	return nil
}

// present returns the latest change and the targets of a claim that should have a row; no targets
// if there should be none.
func (l *local) present(ref lockkeeper.Ref) (change uint64, targets []lockkeeper.Target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.claims[ref]; c != nil && !c.removing {
		return c.change, c.targets
	}
	return 0, nil
}

// removing records that a transaction is about to remove the rows of claims.
func (l *local) removing(refs []lockkeeper.Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ref := range refs {
		if c := l.claims[ref]; c != nil {
			c.removing = true
		}
	}
}

// note records the status of a claim of a session that is attached here.
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
		l.sessions.Get(st.Ref.Session).Own[st.Ref] = false
		c.targets = make([]lockkeeper.Target, len(st.Grants))
		for i, g := range st.Grants {
			c.targets[i] = g.Target
		}
	}
	if st.Change > c.change {
		c.change, c.bound = st.Change, time.Time{}
	}
	if st.Left < lockkeeper.MaxDuration { // something may be due before, such as the end of its longest hold
		if at := time.Now().Add(st.Left + checkLate); c.bound.IsZero() || at.Before(c.bound) {
			c.bound = at
		}
	}
	waits := st.State == lockkeeper.Waiting || st.Converting
	switch {
	case waits && !c.waits:
		c.check = time.Now().Add(l.checkAfter)
	case !waits:
		c.check = time.Time{}
	}
	l.setWaiting(st.Ref, c, waits)
	l.alarm(st.Ref, c)
}

// alarm adds c to alarms if there is a time to check it, and removes it otherwise.
func (l *local) alarm(ref lockkeeper.Ref, c *ownClaim) {
	if c.check.IsZero() && c.bound.IsZero() {
		delete(l.alarms, ref)
	} else {
		l.alarms[ref] = c
	}
}

// behind returns the claims of this process whose rows are newer than their last status here.
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

// update records the statuses that a committed transaction has read or changed, and when to check
// the claims of this process again.
func (l *local) update(tx *transaction) {
	for i := range tx.news.items {
		for j := range tx.news.items[i].statuses {
			l.note(&tx.news.items[i].statuses[j])
		}
	}
	for id, s := range tx.view.sessions { // order does not matter
		if s.process != tx.e.process && tx.attached[id].attempt == "" {
			l.detach(id, s.Epoch) // it is attached elsewhere now
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	next := now.Add(l.checkAfter)
	if at, any := tx.table.Next(); any {
		next = minTime(next, now.Add(max(at-tx.now, 0)+checkLate))
	}
	reschedule := func(ref lockkeeper.Ref) {
		c := l.claims[ref]
		if c == nil {
			return
		}
		if at, any := tx.table.Due(ref); any {
			c.bound = now.Add(max(at-tx.now, 0) + checkLate)
		}
		if c.check = (time.Time{}); c.waits {
			c.check = next
		}
		l.alarm(ref, c)
	}
	for ref := range tx.view.claims { // order does not matter
		reschedule(ref)
	}
	for _, ref := range tx.begun { // they had no rows to read
		reschedule(ref)
	}
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// sample returns claims of the sessions: at most mostSampled of each, in turns; all of a session that has lost some,
// at most mostSuspected. The caller calls sampled when it has looked for their rows.
func (l *local) sample(sessions map[string]bool) (refs []lockkeeper.Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range sessions { // order does not matter: sorted below
		most := mostSampled
		if l.suspects[id] {
			most = mostSuspected
		}
		if a := l.sessions.Get(id); a != nil {
			refs = append(refs, nextTurn(a.Own, most)...)
		}
	}
	slices.SortFunc(refs, compareRefs)
	return refs
}

// nextTurn returns at most that many claims of own, whose values say which ones were sampled in this turn: first those
// that were not.
func nextTurn(own map[lockkeeper.Ref]bool, most int) (refs []lockkeeper.Ref) {
	for _, want := range []bool{false, true} {
		for ref, sampled := range own { // any order: the others follow in this turn
			if len(refs) < most && sampled == want {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

// sampled records that a renewal has looked for the rows of claims of these sessions. When all had their turn, the
// next one begins.
func (l *local) sampled(sessions map[string]bool, refs []lockkeeper.Ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ref := range refs {
		if a := l.sessions.Get(ref.Session); a != nil {
			if _, own := a.Own[ref]; own {
				a.Own[ref] = true
			}
		}
	}
	for id := range sessions { // order does not matter: each by itself
		delete(l.suspects, id)
		if a := l.sessions.Get(id); a != nil {
			endTurn(a.Own)
		}
	}
}

// endTurn begins the next turn if all claims had theirs.
func endTurn(own map[lockkeeper.Ref]bool) {
	for _, sampled := range own {
		if !sampled {
			return
		}
	}
	for ref := range own { // order does not matter
		own[ref] = false
	}
}

// suspect lets the next renewal look for the rows of all claims of a session.
func (l *local) suspect(session string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions.Get(session) != nil {
		l.suspects[session] = true
	}
}

// counts returns how many claims of this process wait, and how many there are.
func (l *local) counts() (waiting, all int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting, len(l.claims)
}

// due returns the claims to check now: those with a time that has passed, and one waiter of each
// wait class. next is when to call it again; zero if there is nothing to check.
func (l *local) due(now time.Time) (refs []lockkeeper.Ref, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := make(map[any]bool)
	for ref, c := range l.alarms { // order does not matter: one of each class will do
		over := !c.bound.IsZero() && !c.bound.After(now)
		if (over || !c.check.IsZero() && !c.check.After(now)) && len(refs) < mostChecks {
			if class := c.waitClass(ref); over || !seen[class] {
				seen[class] = true
				refs = append(refs, ref)
			}
			c.check, c.bound = now.Add(l.checkAfter), time.Time{} // if the check changes nothing
		}
		for _, at := range []time.Time{c.check, c.bound} {
			if !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return refs, next
}
