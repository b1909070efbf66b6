package redlock

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
)

// view is what one server knows of a claim.
type view struct {
	now    quorum.Micros
	until  quorum.Micros // the end of the session at this server; 0 if the server has forgotten the claim
	server int           // the number of its answer
	*quorum.ClaimState
}

// viewOfEnd is what a server knows that has forgotten the claim, but for its end.
func viewOfEnd(e *quorum.EndRecord, now quorum.Micros, server int) view {
	return view{now, 0, server, &quorum.ClaimState{
		ID: e.Ref.ID, State: lockkeeper.Ended, Reason: e.Reason, Text: e.Text, Since: e.At,
	}}
}

// seenAt reports whether the server that answered as the numberth has a view of the claim. The views
// of one server are added together.
func (c *seen) seenAt(number int) bool {
	return len(c.views) > 0 && c.views[len(c.views)-1].server == number
}

// seen is what the servers know of a claim.
type seen struct {
	ref      lockkeeper.Ref
	views    []view
	answered int // servers that answered, whether they know the claim or not
	servers  int
}

// majority is the least number of servers that is more than half of all.
func (c *seen) majority() int { return c.servers/2 + 1 }

// merge returns the claims that the servers know, and for each what they say of it.
//
// A claim is held if a majority of all servers has voted for it with one fence; ended if so many
// servers say so that no majority can know it as live; otherwise it waits if a majority knows it. A
// server that did not answer is assumed to know a claim that others know as waiting, and never to
// have voted for it.
func merge(readings []*reading) []*seen {
	byRef := make(map[lockkeeper.Ref]*seen)
	claimOf := func(ref lockkeeper.Ref) *seen {
		c := byRef[ref]
		if c == nil {
			c = &seen{ref: ref, servers: len(readings)}
			byRef[ref] = c
		}
		return c
	}
	answered := 0
	for _, r := range readings {
		if r == nil {
			continue
		}
		answered++
		for id, session := range r.sessions {
			for i := range session.Claims {
				c := claimOf(lockkeeper.Ref{Session: id, ID: session.Claims[i].ID})
				c.views = append(c.views, view{r.now, session.Until, answered, &session.Claims[i]})
			}
		}
		for i := range r.ends {
			if c := claimOf(r.ends[i].Ref); !c.seenAt(answered) {
				c.views = append(c.views, viewOfEnd(&r.ends[i], r.now, answered))
			}
		}
	}
	for _, c := range byRef {
		c.answered = answered
	}
	return slices.Collect(maps.Values(byRef))
}

// live reports whether the claim waits, or has a vote, at the server.
func (v *view) live() bool { return v.State != lockkeeper.Ended && v.until > v.now }

// voted reports whether the claim has the vote of the server.
func (v *view) voted() bool { return v.live() && v.Vote != 0 }

// fence returns the counter that is common to a majority of the servers that have voted for the
// claim; 0 if it is not held.
func (c *seen) fence() uint64 {
	counts := make(map[uint64]int)
	for i := range c.views {
		if v := &c.views[i]; v.voted() {
			if counts[v.Counter]++; counts[v.Counter] >= c.majority() {
				return v.Counter
			}
		}
	}
	return 0
}

// state returns the state of the claim; 0 if too few servers know it.
func (c *seen) state() (state lockkeeper.State, fence uint64) {
	if fence := c.fence(); fence != 0 {
		return lockkeeper.Held, fence
	}
	live, silent := 0, c.servers-c.answered
	for i := range c.views {
		if c.views[i].live() {
			live++
		}
	}
	switch {
	case live > 0 && live+silent >= c.majority():
		return lockkeeper.Waiting, 0
	case len(c.views)-live+silent >= c.majority():
		return lockkeeper.Ended, 0
	}
	return 0, 0
}

// status returns the merged status of the claim. ok is false if too few servers know it.
func (c *seen) status(brief bool) (st lockkeeper.Status, ok bool) {
	state, fence := c.state()
	if state == 0 {
		return st, false
	}
	st = lockkeeper.Status{Ref: c.ref, State: state, Fence: fence, Left: lockkeeper.Forever}
	latest := c.latest(state)
	st.Revision = latest.Revision
	if w := latest.Want; w != nil {
		st.Inside, st.Priority, st.Label, st.Ticket = w.Inside, w.Priority, w.Label, w.Ticket
		for _, path := range w.Paths {
			target := lockkeeper.Target{Path: lockkeeper.Path(path), Mode: lockkeeper.ModeExclusive}
			st.Grants = append(st.Grants, lockkeeper.Grant{Target: target})
		}
	}
	switch state {
	case lockkeeper.Held:
		c.describeHold(&st, latest)
	case lockkeeper.Waiting:
		st.Age = c.age((*view).live)
		if !brief {
			c.explain(&st)
		}
	case lockkeeper.Ended:
		st.Reason, st.Text, st.Left = c.reason(), latest.Text, 0
	}
	return st, true
}

// latest returns the view with the newest revision among those that have the state; for a hold one
// that has voted.
func (c *seen) latest(state lockkeeper.State) *view {
	var best *view
	for i := range c.views {
		v := &c.views[i]
		if state == lockkeeper.Held && !v.voted() || state == lockkeeper.Ended && v.live() {
			continue
		}
		if best == nil || v.Revision > best.Revision || best.Want == nil && v.Want != nil {
			best = v
		}
	}
	return best
}

// age returns the time since a majority of the servers, or all that there are, had the state.
func (c *seen) age(has func(*view) bool) time.Duration {
	var ages []time.Duration
	for i := range c.views {
		if v := &c.views[i]; has(v) {
			ages = append(ages, duration(v.now-v.Since))
		}
	}
	if len(ages) == 0 {
		return 0
	}
	slices.SortFunc(ages, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	return max(0, ages[min(c.majority(), len(ages))-1])
}

func duration(m quorum.Micros) time.Duration { return time.Duration(m) * time.Microsecond }

// describeHold adds what only a hold has: its age, its ends, and the ask to its holder.
func (c *seen) describeHold(st *lockkeeper.Status, latest *view) {
	st.Age = c.age((*view).voted)
	sure, lapsed := 0, 0
	asks := make(map[string][]*quorum.Ask)
	var ends []time.Duration // of each voting server, until the end of its ask
	for i := range c.views {
		v := &c.views[i]
		if !v.voted() {
			continue
		}
		if v.Unsure <= v.now {
			sure++
		}
		if v.Lapsed {
			lapsed++
		}
		left := lockkeeper.Forever
		if v.Ask != nil {
			asks[v.Ask.By] = append(asks[v.Ask.By], v.Ask)
			if v.Ask.End != 0 {
				left = max(0, duration(v.Ask.End-v.now))
			}
		}
		ends = append(ends, left)
	}
	st.Unconfirmed, st.Lapsed = sure < c.majority(), lapsed >= c.majority()
	// The hold lasts for as long as a majority of all servers keeps its votes.
	slices.SortFunc(ends, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	end := ends[c.majority()-1]
	if w := latest.Want; w != nil {
		if w.Expected > 0 {
			st.Left = max(0, duration(w.Expected)-st.Age)
		}
		if w.MaxHold > 0 {
			st.Left = min(st.Left, max(0, duration(w.MaxHold+w.Grace)-st.Age))
		}
	}
	st.Left = min(st.Left, end)
	for _, by := range slices.Sorted(maps.Keys(asks)) {
		if len(asks[by]) < c.majority() {
			continue
		}
		ask := asks[by][0]
		ref, _ := lockkeeper.ParseRef(by) // an operator's ask has no claim
		st.Asked = &lockkeeper.Asked{By: ref, Label: ask.Label, Reason: ask.Reason, Left: end}
	}
}

// reason returns the reason that most servers state for the end.
func (c *seen) reason() lockkeeper.Reason {
	counts := make(map[lockkeeper.Reason]int)
	best := lockkeeper.NoReason
	for i := range c.views {
		v := &c.views[i]
		why := v.Reason
		if v.State != lockkeeper.Ended {
			if v.live() {
				continue
			}
			why = lockkeeper.Expired
		}
		counts[why]++
		if counts[why] > counts[best] || counts[why] == counts[best] && why < best {
			best = why
		}
	}
	return best
}

// change returns a number for Status.Change that rises with the changes of a live claim: its ticket
// while it waits, and when a majority of the servers had voted for a hold; one more while its holder
// is asked.
func (c *seen) change(st *lockkeeper.Status) uint64 {
	number := st.Ticket
	if st.State == lockkeeper.Held {
		var since []quorum.Micros
		for i := range c.views {
			if v := &c.views[i]; v.voted() {
				since = append(since, v.Since)
			}
		}
		slices.Sort(since)
		number = max(number+1, uint64(max(since[c.majority()-1], 0)))
	}
	number += 2 * st.Revision
	if st.Asked != nil {
		number++
	}
	return max(number, 1)
}

// explain adds why the claim waits.
func (c *seen) explain(st *lockkeeper.Status) {
	type count struct {
		quorum.Blocker
		age, left    time.Duration
		votes, waits int // servers
	}
	blockers := make(map[lockkeeper.Ref]*count)
	asking := 0
	for i := range c.views {
		v := &c.views[i]
		if !v.live() || v.voted() {
			continue
		}
		st.Position = max(st.Position, v.Position)
		if v.Asking {
			asking++
		}
		for _, b := range v.Blockers {
			n := blockers[b.Ref]
			if n == nil {
				n = &count{Blocker: b, age: max(0, duration(v.now-b.Since))}
				if b.Announced > v.now {
					n.left = duration(b.Announced - v.now)
				}
				blockers[b.Ref] = n
			}
			if b.Waiting {
				n.waits++
			} else {
				n.votes++
				n.Blocker.Path = b.Path
			}
		}
	}
	st.Position = max(st.Position, 1)
	all := slices.SortedFunc(maps.Values(blockers), func(a, b *count) int {
		return cmp.Or(cmp.Compare(b.votes, a.votes), cmp.Compare(b.Priority, a.Priority),
			cmp.Compare(a.Ticket, b.Ticket), cmp.Compare(a.Ref.Session, b.Ref.Session), cmp.Compare(a.Ref.ID, b.Ref.ID))
	})
	for _, b := range all[:min(len(all), lockkeeper.MaxBlockers)] {
		why := lockkeeper.Behind
		if b.votes > b.waits {
			why = lockkeeper.HeldBy
		}
		st.Blockers = append(st.Blockers, lockkeeper.Blocker{
			Ref:   b.Ref,
			Why:   why,
			Path:  lockkeeper.Path(b.Path),
			Mode:  lockkeeper.ModeExclusive,
			Age:   b.age,
			Left:  b.left,
			Label: b.Label,
		})
		if !slices.Contains(st.Waits, why) {
			st.Waits = append(st.Waits, why)
		}
	}
	if asking > 0 {
		st.Waits = append(st.Waits, lockkeeper.AskedToYield)
	}
	slices.Sort(st.Waits)
	st.ETA = quorum.Estimate(st.Position, st.Blockers)
}
