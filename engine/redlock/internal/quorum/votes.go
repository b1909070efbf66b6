package quorum

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A ballot is what the party knows of one claim at one server. The vote counts iff
//
//	vote > gone
//
// Both only rise, so the order in which states arrive does not matter. gone covers votes that the
// server ended, votes that this party returned, and votes that are void because the server no longer
// has the session.
type ballot struct {
	vote    uint64 // the highest number of a vote seen
	gone    uint64 // the highest number that is known to be over
	counter uint64 // of the paths, while the vote counts: its fence once it is stamped

	sent     bool          // a Claim, or a Restore with the claim, may have reached the server
	known    bool          // the server has the claim
	knownAt  uint64        // requests with a higher number were sent after the party knew that
	askedAt  uint64        // number of the latest Claim or Restore of it
	failedAt time.Duration // when the latest Claim that got no answer was given up; 0: none was
	revision uint64

	ended   bool // this server never votes for the claim again
	reason  lockkeeper.Reason
	text    string
	lapsed  bool // the server has executed the Lapse
	endDone bool // the server has executed the End, or can't have the claim
	// when the request was sent whose answer had the vote
	voteSent time.Duration

	full time.Duration // until when nothing is sent: the server was full, or its data damaged

	// Requests on their way.
	claiming, ending, stamping, returning, lapsing bool

	now       Micros        // the server's time in the latest state
	stateSent time.Duration // when the request of the latest state was sent
	stateGot  time.Duration // when that state arrived
	unsure    time.Duration // until when a former holder may rely on this server's promise
	state     *ClaimState   // the latest

	ask    *Ask
	askEnd time.Duration // when the ask ends; never: it has no end, or there is none
	stated Micros        // Ask.End that the latest lease covers
	acked  Micros        // Ask.End that was sent as acknowledged

	returned lockkeeper.Ref // the rival for which the latest vote was given back
	returnAt time.Duration
}

func (b *ballot) counts() bool { return b.vote > b.gone && !b.ended }

// stuck reports whether the server still has the claim's vote although this party returned it: the
// Return was lost. The vote can't count again, for that Return may be executed yet, and while it stands
// nobody gets another one there. So the party returns it once more; unless the claim has lapsed there, for
// then the server refuses that, and ends the claim by itself.
func (b *ballot) stuck() bool {
	return b.known && b.state != nil && b.state.Vote != 0 && b.state.Vote <= b.gone && !b.state.Lapsed &&
		b.returnAt != 0 && b.stateSent > b.returnAt
}

// invalidate makes all votes seen so far void.
func (b *ballot) invalidate() {
	b.gone = max(b.gone, b.vote)
	b.known, b.counter, b.ask, b.askEnd, b.stated, b.acked = false, 0, nil, never, 0, 0
}

// landed records that the request of that kind is not on its way any more.
func (b *ballot) landed(k Kind) {
	switch k {
	case Claim:
		b.claiming = false
	case End:
		b.ending = false
	case Stamp:
		b.stamping = false
	case Return:
		b.returning = false
	case Lapse:
		b.lapsing = false
	}
}

// evidence is a state of a claim and how it arrived.
type evidence struct {
	state *ClaimState
	now   Micros        // the clock of the server
	sent  time.Duration // when its request was sent; of a message, the earliest moment known
	got   time.Duration
	reply bool // sent is certain
}

// apply takes what one server says of the claim.
func (p *Party) apply(c *claim, server int, e evidence) {
	b, st := &c.at[server], e.state
	late := p.late(b, e)
	if !b.known {
		b.known, b.knownAt = true, p.number
	}
	b.sent = true
	b.revision = max(b.revision, st.Revision)
	if st.State == lockkeeper.Ended {
		b.ended, b.reason, b.text = true, st.Reason, st.Text
		if !late {
			b.state, b.now, b.stateSent, b.stateGot = st, e.now, e.sent, e.got
		}
		b.gone = max(b.gone, b.vote)
		return
	}
	if st.Vote == 0 {
		b.gone = max(b.gone, st.Counter)
	} else {
		b.gone = max(b.gone, st.Vote-1)
		if st.Vote > b.vote {
			b.vote, b.counter, b.voteSent = st.Vote, st.Vote, e.sent
			b.unsure = 0
			if st.Unsure > e.now {
				b.unsure = e.got + (st.Unsure - e.now).duration()
			}
		}
		if st.Vote == b.vote {
			b.counter = max(b.counter, st.Counter)
		}
	}
	b.applyAsk(e, late)
	if !late {
		b.state, b.now, b.stateSent, b.stateGot = st, e.now, e.sent, e.got
		if st.Lapsed && c.lapse == lockkeeper.NoReason {
			c.lapse, c.lapseEnd = lockkeeper.Expired, 0
		}
	}
}

// late reports whether a state may be older than the latest one. The clock of the server says so,
// unless it was set back: the answer to a request that was sent after the latest state had arrived is
// newer.
func (p *Party) late(b *ballot, e evidence) bool {
	return e.now < b.now && (!e.reply || e.sent <= b.stateGot)
}

// applyAsk takes the ask in a state. A state that may be older than the latest one can only bring the
// end nearer: a holder must not rely on an ask being withdrawn that still stands.
func (b *ballot) applyAsk(e evidence, late bool) {
	ask, end := e.state.Ask, never
	if ask != nil && ask.End != 0 {
		end = e.sent + (ask.End - e.now).duration()
	}
	if late && end >= b.askEnd {
		return
	}
	if ask == nil {
		end = never
	}
	b.ask, b.askEnd = ask, end
}

// counted returns the number of votes that count.
func (c *claim) counted() int {
	n := 0
	for i := range c.at {
		if c.at[i].counts() {
			n++
		}
	}
	return n
}

// current reports whether the party may rely on the vote of a server for a grant now: it counts, and
// nothing that the server promised ends before what the client believes of the session. The clock of
// the server may run faster than that of the party, so the promise counts less the margin.
func (p *Party) current(c *claim, i int, now time.Duration) bool {
	b := &c.at[i]
	return b.counts() && b.askEnd-lockkeeper.Margin(c.session.ttl) > now && !p.promisesTooLittle(c.session, i, now)
}

// promisesTooLittle reports whether what a server promised of the session keeps its votes from being
// current. A renewal changes that.
func (p *Party) promisesTooLittle(s *session, i int, now time.Duration) bool {
	promise := s.seats[i].promise
	return promise-lockkeeper.Margin(s.ttl) <= now || promise < s.clientEnd
}

// currentVotes returns the number of current votes.
func (p *Party) currentVotes(c *claim, now time.Duration) int {
	n := 0
	for i := range c.at {
		if p.current(c, i, now) {
			n++
		}
	}
	return n
}

// endedAt returns the number of servers that never vote for the claim again, and the reason that
// most of them state, with its text. How a hold ended, the servers know that had voted for it: another
// one may have refused the claim.
func (c *claim) endedAt() (n int, why lockkeeper.Reason, text string) {
	var buffer [7]lockkeeper.Reason
	reasons := buffer[:0]
	for i := range c.at {
		if b := &c.at[i]; b.ended {
			n++
			if c.phase != held || b.vote != 0 {
				reasons = append(reasons, b.reason)
			}
		}
	}
	most := 0
	for _, r := range reasons {
		same := 0
		for _, other := range reasons {
			if other == r {
				same++
			}
		}
		if same > most || same == most && r == lockkeeper.Revoked {
			most, why = same, r
		}
	}
	for i := range c.at {
		if c.at[i].ended && c.at[i].reason == why && c.at[i].text != "" {
			text = c.at[i].text
		}
	}
	return n, why, text
}

// fence returns the fence by which the claim is granted; 0 if it is not granted yet. That is the
// lowest number f, not below c.aim, with which a majority is stamped. Server i is stamped with f if
//
//	vote_i is current, vote_i <= f, counter_i = f
//
// Two majorities meet in a server. There, an earlier grant of a path of this claim left a counter not
// below its fence, and the vote has a higher number; so f is above the fences of all earlier grants
// of all its paths. A later vote of a majority has, at one server, a number above counter_i = f.
func (p *Party) fence(c *claim, now time.Duration) uint64 {
	best := uint64(0)
	for i := range c.at {
		f := c.at[i].counter
		if !p.current(c, i, now) || f < c.aim || best != 0 && f >= best {
			continue
		}
		stamped := 0
		for k := range c.at {
			if b := &c.at[k]; p.current(c, k, now) && b.vote <= f && b.counter == f {
				stamped++
			}
		}
		if stamped >= p.majority {
			best = f
		}
	}
	return best
}

// raiseAim chooses the number to stamp if a majority has voted with different numbers: the lowest
// one that is possible. It never falls, so that at most one number is stamped at a majority.
func (p *Party) raiseAim(c *claim, now time.Duration) {
	var buffer [7]uint64
	votes := buffer[:0]
	for i := range c.at {
		if p.current(c, i, now) {
			votes = append(votes, c.at[i].vote)
		}
	}
	if len(votes) < p.majority {
		return
	}
	slices.Sort(votes)
	c.aim = max(c.aim, votes[p.majority-1])
}

// confirmed reports whether a majority of the votes is not in doubt: no former holder relies on the
// server any more (R12).
func (p *Party) confirmed(c *claim, now time.Duration) bool {
	sure := 0
	for i := range c.at {
		if p.current(c, i, now) && c.at[i].unsure <= now {
			sure++
		}
	}
	return sure >= p.majority
}

// mayConfirm reports whether the vote of another server may confirm the grant. Each server ends the
// former hold by its own clock, so those that have voted first need not be those that are sure. It is
// worth a moment.
func (p *Party) mayConfirm(c *claim, now time.Duration) bool {
	for i := range c.at {
		if b := &c.at[i]; !b.ended && !p.current(c, i, now) && p.usable(c.session, i) {
			return true
		}
	}
	return false
}
