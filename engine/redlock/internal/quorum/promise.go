package quorum

import (
	"slices"
	"time"
)

// A promise of a server is the time, on the boot clock of this computer, until which the server
// certainly keeps the session:
//
//	promise = sent + (Until - Now)
//
// sent is when the party sent the Attach, Renew or Restore to which the server answered that its end
// of the session is Until, at Now on its clock. The server executed it after sent. Promises only
// rise, until the server says that it has no such session or lost its data: then they are void.
//
// The deadline of a session is the majority-th largest promise: until then, at every moment, a
// majority keeps the session. The deadline of a hold is the majority-th largest promise of the
// servers whose votes it has, because nobody else is granted the claim's paths without the vote of
// one of these. If it is asked to yield, the end of the ask counts where that is earlier.

// renewed raises the promise of a server.
func (seat *seat) renewed(sent time.Duration, now, until Micros) {
	seat.promise = max(seat.promise, sent+(until-now).duration())
	seat.renewedFrom = max(seat.renewedFrom, sent)
	seat.joined, seat.absent, seat.other = true, false, 0
}

// kthLargest returns the k-th largest of all, counted from 1; 0 if there are fewer.
func kthLargest(all []time.Duration, k int) time.Duration {
	if len(all) < k {
		return 0
	}
	slices.Sort(all)
	return all[len(all)-k]
}

// deadline returns the deadline of a session; 0 if no majority promises anything.
func (p *Party) deadline(s *session) time.Duration {
	var buffer [7]time.Duration
	all := buffer[:0]
	for i := range s.seats {
		all = append(all, s.seats[i].promise)
	}
	return kthLargest(all, p.majority)
}

// holdDeadline returns the deadline of a hold, without asks and with them; 0 if it has no majority.
func (p *Party) holdDeadline(c *claim) (promised, asked time.Duration) {
	var buffer, bufferAsked [7]time.Duration
	all, ends := buffer[:0], bufferAsked[:0]
	for i := range c.at {
		if b := &c.at[i]; b.counts() {
			all = append(all, c.session.seats[i].promise)
			ends = append(ends, min(c.session.seats[i].promise, b.askEnd))
		}
	}
	return kthLargest(all, p.majority), kthLargest(ends, p.majority)
}

// void ends the promise of a server, and all votes of the session there. What was sent before says
// nothing any more: a claim that ended there with the session may wait there again, with the session
// restored.
func (p *Party) void(s *session, server int) {
	seat := &s.seats[server]
	seat.promise, seat.joined, seat.voided, seat.since = 0, false, true, p.number+1
	for _, c := range s.claims { // order does not matter: each claim is independent
		if c.phase != ended {
			c.at[server].invalidate()
			c.at[server].ended = c.at[server].ended && c.wantsTry()
		}
	}
}
