package lockkeeper

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/deadlines"
)

// phase is the state of a claim in this client.
//
//	           answer: waits           answer or hint: held
//	asking ─────────────────► inLine ─────────────────────► granted
//	  └─ refused, given up      └─ timed out, cancelled       └─ released, lost ─► over
type phase uint8

const (
	asking phase = iota // not answered yet: the engine may or may not have it
	inLine              // answered: it waits
	granted
	over // ended, lost or given up: it is never held again, whatever the engine reports later
)

// fromHint takes the place of the sending time for a status that came by a hint and not in an
// answer.
const fromHint time.Duration = -1

type claimEnd = deadlines.End[Reason]

// claim is one claim of a client. The fields above the blank line do not change after the first
// request to the engine, except for demand.want; Client.mu guards that and the others.
type claim struct {
	demand // want is the latest request; an amendment replaces it
	client *Client
	op     string
	id     uint64
	path   Path  // the first one, for messages
	first  *Hold // the handle of the caller; further ones are in more
	room   Hold  // memory for first

	phase       phase
	sent        bool   // the engine may have it
	answered    bool   // the engine has answered it, so that ending it is final
	epoch       uint64 // of the key with which it was last sent or named
	resend      bool   // the want must be sent again in the background
	lapse       Lapse  // of a claim that is over: its lapse, if it lapsed
	needsAnswer bool   // granted by a hint, but its longest hold must be counted from an answer
	delivered   bool   // returned to the caller
	inFlight    int    // calls of Engine.Claim in flight: the claim is ended only when there are none
	endInFlight bool   // the caller that gave it up is ending it at the engine
	live        int    // handles that are not released
	known       bool   // status is set
	status      Status
	knownAt     time.Duration          // when it was set; not of an engine that keeps all in memory
	ends        deadlines.Ends[Reason] // apart from its session
	result      *Error                 // of over: why; nil for an ordinary release
	more        []*Hold
	revision    uint64        // the highest that was sent
	amendSlot   chan struct{} // full while an amendment is in flight
	changed     chan struct{} // closed at the next change, if somebody waits for it
	yield       chan struct{} // closed while the holder is asked to yield
	yielding    bool          // yield is closed, or will be when it is made
}

// ref names the claim.
func (cl *claim) ref() Ref { return Ref{Session: cl.client.session.ID, ID: cl.id} }

// wake wakes all goroutines that wait for a change of the claim.
func (cl *claim) wake() {
	if cl.changed != nil {
		close(cl.changed)
		cl.changed = nil
	}
}

// watch returns a channel that is closed at the next change of the claim.
func (cl *claim) watch() <-chan struct{} {
	if cl.changed == nil {
		cl.changed = make(chan struct{})
	}
	return cl.changed
}

// applyStatus applies a status of cl: from the answer to a request that was sent at that time, or
// from a hint. It reports whether an answer stated an end that no earlier answer had stated.
func (c *Client) applyStatus(cl *claim, s *Status, sent time.Duration) (ends bool) {
	newer := !cl.known || s.Change > cl.status.Change
	if newer || sent != fromHint && s.Change == cl.status.Change {
		if s.State == Ended && s.Fence == 0 && len(s.Blockers) == 0 && cl.known {
			// The end of a wait without evidence keeps the last known blockers.
			blockers, position, eta := cl.status.Blockers, cl.status.Position, cl.status.ETA
			cl.status = *s
			cl.status.Blockers, cl.status.Position, cl.status.ETA = blockers, position, eta
		} else {
			cl.status = *s
		}
		cl.known = true
		if !c.prompt {
			cl.knownAt = c.clock()
		}
	}
	if cl.phase != over && s.State == Held {
		ends = c.applyEnd(cl, s, sent, newer)
	}
	if newer {
		c.applyState(cl)
	}
	return ends
}

// applySetBack applies a status of a lease that was requested at sent, and that is older than one that the client
// knew by then: the engine was set back since, such as a database that lost its last commits by a failover. What it
// says now counts. A hold that it has no more, or only shared, is lost.
func (c *Client) applySetBack(cl *claim, s *Status, sent time.Duration) {
	weaker := false
	for i, g := range s.Grants {
		weaker = weaker || i < len(cl.status.Grants) && g.Mode == ModeShared && cl.status.Grants[i].Mode == ModeExclusive
	}
	cl.known = false
	cl.ends.Recount()
	c.applyStatus(cl, s, sent)
	if weaker && cl.phase == granted && s.State == Held {
		c.endClaim(cl, lost(cl, Expired, ""), true)
	}
}

// isSetBack reports whether a status of a lease that was requested at sent is older than one that the client knew
// by then.
func (cl *claim) isSetBack(s *Status, sent time.Duration) bool {
	return cl.known && s.Change < cl.status.Change && cl.knownAt > 0 && sent > cl.knownAt
}

// applyEnd sets the ends of a hold from a status. A hint of an end makes the client renew at once.
// applyEnd reports whether an answer stated a new end; the first answer of a claim with a longest
// hold does not count, because that hold begins with the answer.
func (c *Client) applyEnd(cl *claim, s *Status, sent time.Duration, newer bool) (ends bool) {
	var end claimEnd
	if s.Asked != nil && s.Asked.Left != Forever {
		at := sent
		if at == fromHint {
			at = c.clock()
		}
		why := s.Asked.Reason
		if why != Overdue && why != Revoked {
			why = Stolen
		}
		end = deadlines.After(at, s.Asked.Left, why, s.Asked.EndsAt)
	}
	if sent != fromHint {
		counts := cl.ends.Answered() || cl.want.MaxHold == 0
		ends = cl.ends.Answer(s.Change, end, s.Change >= cl.status.Change) && counts
	} else if newer && cl.ends.Hint(end) {
		c.renewSoon = true
		c.wakeWorker()
	}
	if most := cl.want.MaxHold; most > 0 && sent != fromHint {
		cl.ends.Bound(sent, most+cl.want.Grace-s.Age, Overdue)
		cl.needsAnswer = false
	} else if most > 0 && !cl.ends.Bounded() {
		cl.needsAnswer = true
	}
	if end := cl.ends.First(); end.Known() {
		c.ends[cl] = struct{}{}
		c.armTicker(end.At)
	} else if len(c.ends) > 0 {
		delete(c.ends, cl)
	}
	return ends
}

// applyState makes the changes that follow from a new status.
func (c *Client) applyState(cl *claim) {
	s := &cl.status
	switch {
	case s.State == Ended && cl.phase == over:
		delete(c.unfinished, cl.id)
	case s.State == Ended && cl.phase == granted:
		c.endClaim(cl, lost(cl, s.Reason, s.Text), false)
	case s.State == Ended:
		c.endClaim(cl, cl.refused(s.Reason, nil), false)
	case cl.phase == over:
		// The caller gave it up; the client is ending it at the engine.
	case s.State == Held && cl.phase != granted:
		c.grant(cl)
	case s.State == Waiting && cl.phase == asking:
		cl.phase = inLine
		c.watchDeadline()
	case s.State == Waiting && cl.phase == granted:
		// The part of the engine that took the session over finds no majority for the hold any more, or
		// the engine was set back.
		c.endClaim(cl, lost(cl, Expired, ""), true)
		return
	}
	if asked := cl.phase == granted && s.Asked != nil; asked != cl.yielding {
		cl.yielding = asked
		if asked && cl.yield != nil {
			close(cl.yield)
		} else {
			cl.yield = nil // the request was withdrawn: the next one closes another channel
		}
	}
	cl.wake()
}

// grant makes cl a hold with one handle.
func (c *Client) grant(cl *claim) {
	cl.phase, cl.live = granted, 1
	c.watchDeadline()
}

// endClaim ends cl in this client and wakes its holders. If later is set, the engine may still have
// it, and the client ends it there in the background.
func (c *Client) endClaim(cl *claim, why *Error, later bool) {
	if why.Err == ErrLost {
		c.log(slog.LevelWarn, "lock lost", "claim", cl.ref().String(), "path", string(cl.path), "reason", why.Reason.String())
		if !cl.delivered {
			why = cl.refused(why.Reason, why.Cause)
		}
	}
	cl.result = why
	c.forget(cl)
	cl.first.finish(handleLost)
	for _, h := range cl.more {
		h.finish(handleLost)
	}
	if later && !c.closed {
		c.unfinished[cl.id] = cl
		c.wakeWorker()
	}
}

// forget removes cl from the claims that the client wants.
func (c *Client) forget(cl *claim) {
	cl.phase, cl.live = over, 0
	delete(c.claims, cl.id)
	if len(c.ends) > 0 {
		delete(c.ends, cl)
	}
	cl.wake()
}

// endError returns why cl, which is over, ended: a loss, a refusal, or its release.
func (cl *claim) endError() *Error {
	if cl.result != nil {
		return cl.result
	}
	return &Error{Op: "hold", Path: cl.path, Err: ErrNotHeld, Reason: Released}
}

// lost returns the error of a lost hold.
func lost(cl *claim, why Reason, text string) *Error {
	return &Error{Op: "hold", Path: cl.path, Err: ErrLost, Reason: why, Detail: text}
}

// lapseClaim ends cl, whose own end has passed by this client's clock. It reports that end to the
// engine, which keeps the claim held for the margin, and then ends it for the same reason.
func (c *Client) lapseClaim(cl *claim, end claimEnd) {
	text := ""
	if asked := cl.status.Asked; asked != nil && asked.Reason == end.Why {
		text = asked.String()
	}
	cl.lapse = Lapse{ID: cl.id, Reason: end.Why, EndsAt: end.EndsAt}
	c.endClaim(cl, lost(cl, end.Why, text), true)
}

// endRequest returns the Ending with which the client ends cl, which is over here, at the engine.
func (cl *claim) endRequest() Ending {
	if cl.lapse.Reason != NoReason {
		return Ending{Kind: Lapsed, Lapse: cl.lapse}
	}
	return Ending{Kind: Release, ID: cl.id}
}

// refused returns the error of a claim that ended before anybody held it, with its evidence. A
// claim that is taken and an engine that can't be reached never give the same error.
func (cl *claim) refused(why Reason, cause error) *Error {
	s := &cl.status
	e := &Error{Op: cl.op, Path: cl.path, Err: ErrNotAcquired, Reason: why, Detail: s.Text,
		Blocked: s.Blockers, Position: s.Position, ETA: s.ETA, Cause: cause}
	if e.Detail == "" && slices.ContainsFunc(s.Blockers, cl.heldByClient) {
		e.Detail = "this client holds it: pass the Context of that hold to lock it again inside that hold"
	}
	switch why {
	case Deadlock:
		e.Err = ErrDeadlock
	case Expired, Superseded, EngineRestarted, QuorumLost, Unreachable, Suspended:
		e.Err, e.Blocked = ErrUnavailable, nil
	case TimedOut:
		if cause == nil && cl.byContext {
			e.Cause = context.DeadlineExceeded
		}
	}
	return e
}

// heldByClient reports whether b is a hold of the same client.
func (cl *claim) heldByClient(b Blocker) bool {
	return b.Why == HeldBy && b.Ref.Session == cl.client.session.ID
}

// wrap adds the operation and the path to err, unless it has them.
func wrap(op string, path Path, err error) *Error {
	if e, ok := err.(*Error); ok {
		named := *e
		if named.Op == "" {
			named.Op = op
		}
		if named.Path == "" {
			named.Path = path
		}
		return &named
	}
	for _, known := range refusals {
		if err == known {
			return &Error{Op: op, Path: path, Err: known}
		}
		if errors.Is(err, known) {
			return &Error{Op: op, Path: path, Err: known, Cause: err}
		}
	}
	return &Error{Op: op, Path: path, Err: ErrUnavailable, Cause: err}
}

// refusals are the answers that a repetition does not change.
var refusals = [...]error{ErrInvalid, ErrUnsupported, ErrDenied, ErrDeadlock, ErrNotAcquired, ErrNotHeld}

// isRefusal reports whether err is an answer that a repetition does not change.
func isRefusal(err error) bool {
	if e, ok := err.(*Error); ok {
		err = e.Err // its cause may be anything: an end of the caller's context, for instance
	}
	for _, known := range refusals {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}
