package quorum

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A split vote: several claims have votes, and none has a majority.
//
//	server 1   A        A has the lowest ticket: it keeps its vote.
//	server 2   B        B returns its vote in favour of A, after a random pause.
//	server 3   C        C too. A has all.
//
// A claim returns its votes in favour of a rival that has a majority, and else of the best of the
// rivals that go before it. That one may have no vote yet: it wants several paths, and other claims have
// the votes for one or another of them. The best of all never returns its votes, so the votes converge. If the
// favoured claim can't use the vote, because it is over or does not wait at that server, nobody else
// gets it: a claim that came later would overtake. The one that returned it is given it back, keeps it
// for favourPause, and then returns it without naming a rival.

// A rival keeps c from the votes of servers: it has them, or it waits there ahead of c.
type rival struct {
	ref      lockkeeper.Ref
	priority int
	ticket   uint64
	votes    int
}

// before reports whether r goes before o in every queue.
func (r *rival) before(o *rival) bool {
	return cmp.Or(cmp.Compare(o.priority, r.priority), cmp.Compare(r.ticket, o.ticket),
		cmp.Compare(r.ref.Session, o.ref.Session), cmp.Compare(r.ref.ID, o.ref.ID)) < 0
}

// resolveSplit prepares the return of c's votes, or asks the servers that c has no vote of, if what
// they said is older than the votes.
func (p *Party) resolveSplit(c *claim, now time.Duration) {
	if c.wait.splitAt != never {
		return
	}
	if !p.informed(c, now) {
		c.wait.splitAt = now + splitPause
		return
	}
	best := p.bestRival(c)
	if best == nil || !p.mayReturn(c, best, now) || p.mayBeHeld(c, now) {
		return
	}
	if best.votes >= p.majority {
		p.returnVotes(c, now)
		return
	}
	c.wait.splitAt = now + time.Duration(p.random.Int64N(int64(splitPause)))
}

// informed reports whether all servers that have not voted for c were asked after the others voted, and have
// answered, are silent, or failed to answer: a server may be up and refuse every request.
func (p *Party) informed(c *claim, now time.Duration) bool {
	latest := time.Duration(0)
	for i := range c.at {
		if c.at[i].counts() {
			latest = max(latest, c.at[i].voteSent)
		}
	}
	for i := range c.at {
		b := &c.at[i]
		silent := b.claiming && now >= c.wait.silentBy || b.failedAt > latest
		if !b.counts() && !b.ended && p.usable(c.session, i) && b.stateSent+time.Millisecond < latest && !silent {
			return false
		}
	}
	return true
}

// returnVotes returns c's votes, after the pause.
func (p *Party) returnVotes(c *claim, now time.Duration) {
	if !p.informed(c, now) {
		c.wait.silentBy = now + slowServer
		for i := range c.at {
			if !c.at[i].counts() {
				p.ask(c, i)
			}
		}
		return
	}
	best := p.bestRival(c)
	if best == nil || p.currentVotes(c, now) >= p.majority || p.mayBeHeld(c, now) {
		return
	}
	for i := range c.at {
		b := &c.at[i]
		if !b.counts() || b.claiming || b.stamping || b.returning || !p.usable(c.session, i) || b.kept(best, now) {
			continue
		}
		favour := best.ref.String()
		if b.returned == best.ref {
			favour = "" // it could not use the vote: another rival may
		}
		b.returning, b.returned, b.returnAt = true, best.ref, now
		b.gone = max(b.gone, b.vote) // from now on it does not count, whether the server executes the Return or not
		p.send(i, c.session, c, Request{Kind: Return, Vote: b.vote, Favour: favour})
	}
}

func (p *Party) mayReturn(c *claim, best *rival, now time.Duration) bool {
	for i := range c.at {
		if b := &c.at[i]; b.counts() && !b.kept(best, now) {
			return true
		}
	}
	return false
}

// kept reports whether the vote is kept because it was returned in favour of the same rival recently.
func (b *ballot) kept(r *rival, now time.Duration) bool {
	return b.returned == r.ref && now < b.returnAt+favourPause
}

// bestRival returns the rival in whose favour c returns its votes; nil if c keeps them.
func (p *Party) bestRival(c *claim) *rival {
	var all []rival
	for i := range c.at {
		b := &c.at[i]
		if b.counts() || b.state == nil {
			continue
		}
		for k := range b.state.Blockers {
			r := &b.state.Blockers[k]
			if r.Waiting && !p.usable(c.session, i) {
				continue // it may be over
			}
			at := slices.IndexFunc(all, func(o rival) bool { return o.ref == r.Ref })
			if at < 0 {
				at = len(all)
				all = append(all, rival{ref: r.Ref, priority: r.Priority, ticket: r.Ticket})
			}
			if !r.Waiting {
				all[at].votes++
			}
		}
	}
	own := rival{ref: c.ref(), priority: c.record.Priority, ticket: c.record.Ticket}
	var best *rival
	for i := range all {
		r := &all[i]
		if r.votes >= p.majority {
			return r
		}
		if r.before(&own) && (best == nil || r.before(best)) {
			best = r
		}
	}
	return best
}
