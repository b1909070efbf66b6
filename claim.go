package lockkeeper

import (
	"context"
	"errors"
	"slices"
	"time"
)

// phase is where a claim stands for this client.
type phase uint8

const (
	asking phase = iota // not answered yet: whether the engine has it is not known
	inLine              // answered: it waits
	granted
	over // ended, lost or given up: whatever the engine says later, it is never held again
)

// byHint is the sending time of what was not asked for.
const byHint time.Duration = -1

// ending is when a claim ends at the latest, by the boot clock, and why. The
// zero ending is none.
type ending struct {
	at     time.Duration
	why    Reason
	endsAt time.Duration // the engine's end, one margin later, as the engine stated it: for Lapse
}

// sooner is the earlier of the two endings.
func (e ending) sooner(other ending) ending {
	if e.why == NoReason || other.why != NoReason && other.at < e.at {
		return other
	}
	return e
}

// margin is how much sooner than the engine the client takes a duration to be
// over: it covers clocks whose rates differ by one in a hundred (R12).
func margin(d time.Duration) time.Duration { return d/100 + 10*time.Millisecond }

// claim is one claim of a client. What stands above the blank line does not
// change once the engine is asked; the rest is guarded by Client.mu.
type claim struct {
	demand // its want is what was asked for latest, and changes with amendments
	client *Client
	op     string
	id     uint64
	path   Path // the first one, for messages
	first  Hold // the handle of whoever asked; further ones are in more

	phase    phase
	sent     bool   // the engine may know it
	answered bool   // the engine has answered it, so that ending it is final
	epoch    uint64 // of the key with which it was last sent or named
	resend   bool   // the want must be sent again in the background
	lapse    Lapse  // of a claim that is over: its lapse, if it lapsed
	confirm  bool   // granted by a hint, but its longest hold must be counted from an answer
	taken    bool   // handed to whoever asked
	flying   int    // calls of Engine.Claim that are out: it is ended only when there are none
	parting  bool   // the caller that gave it up is ending it at the engine
	live     int    // handles that are not released
	known    bool   // status is set
	status   Status
	told     ending // as the last answer stated it: what the engine relies on (R12)
	toldBy   uint64 // Status.Change of that answer
	hinted   ending // as a newer hint stated it: it may only shorten
	overdue  ending // the end of its longest hold and grace
	result   *Error // of over: why; nil for an ordinary release
	more     []*Hold
	revision uint64        // the highest that was used
	turn     chan struct{} // full while an amendment is out
	changed  chan struct{} // closed at the next change, if somebody waits for it
	yield    chan struct{} // closed while the holder is asked to yield
	yielding bool          // yield is closed, or will be when it is made
}

// ref names the claim.
func (cl *claim) ref() Ref { return Ref{Session: cl.client.session.ID, ID: cl.id} }

// end is when the claim ends by itself, apart from its session.
func (cl *claim) end() ending { return cl.told.sooner(cl.hinted).sooner(cl.overdue) }

// wake wakes whoever waits for a change of the claim.
func (cl *claim) wake() {
	if cl.changed != nil {
		close(cl.changed)
		cl.changed = nil
	}
}

// watch returns what is closed at the next change of the claim.
func (cl *claim) watch() <-chan struct{} {
	if cl.changed == nil {
		cl.changed = make(chan struct{})
	}
	return cl.changed
}

// learn takes in what the engine says of a claim: in an answer to what was sent
// at that time, or by a hint. It reports whether that was an answer with an end that
// no answer had told before.
func (c *Client) learn(cl *claim, s *Status, sent time.Duration) (ends bool) {
	newer := !cl.known || s.Change > cl.status.Change
	if newer || sent != byHint && s.Change == cl.status.Change {
		if s.State == Ended && s.Fence == 0 && len(s.Blockers) == 0 && cl.known {
			// The end of a wait tells at least who stood in the way before it.
			blockers, place, eta := cl.status.Blockers, cl.status.Position, cl.status.ETA
			cl.status = *s
			cl.status.Blockers, cl.status.Position, cl.status.ETA = blockers, place, eta
		} else {
			cl.status = *s
		}
		cl.known = true
	}
	if cl.phase != over && s.State == Held {
		ends = c.learnEnd(cl, s, sent, newer)
	}
	if newer {
		c.move(cl)
	}
	return ends
}

// learnEnd takes in until when the claim is held. What an answer states is what
// the engine relies on, even if a hint has told of a later change already; a
// hint may be late, so it only shortens, and has the truth asked for at once. It
// reports whether an answer told a new end, earlier ones aside that told none of a
// hold whose longest hold begins with the answer.
func (c *Client) learnEnd(cl *claim, s *Status, sent time.Duration, newer bool) (ends bool) {
	var end ending
	if s.Asked != nil && s.Asked.Left != Forever {
		at := sent
		if at == byHint {
			at = c.clock()
		}
		end = ending{at + s.Asked.Left - margin(s.Asked.Left), s.Asked.Reason, s.Asked.EndsAt}
		if end.why != Overdue && end.why != Revoked {
			end.why = Stolen
		}
	}
	switch {
	case sent != byHint && s.Change >= cl.toldBy:
		ends = end.why != NoReason && s.Change > cl.toldBy && (cl.toldBy > 0 || cl.want.MaxHold == 0)
		cl.told, cl.toldBy = end, s.Change
		if s.Change >= cl.status.Change {
			cl.hinted = ending{}
		}
	case sent == byHint && newer:
		cl.hinted = end
		if end.why != NoReason || cl.told.why != NoReason {
			c.renewSoon = true
			c.kick()
		}
	}
	if most := cl.want.MaxHold; most > 0 && sent != byHint {
		// Every answer is sure, and the later it came the less was left over
		// which clocks may differ.
		left := most + cl.want.Grace - s.Age
		if at := sent + left - margin(left); cl.overdue.why == NoReason || at > cl.overdue.at {
			cl.overdue = ending{at: at, why: Overdue}
		}
		cl.confirm = false
	} else if most > 0 && cl.overdue.why == NoReason {
		cl.confirm = true
	}
	if end := cl.end(); end.why != NoReason {
		c.ends[cl] = struct{}{}
		c.arm(end.at)
	} else if len(c.ends) > 0 {
		delete(c.ends, cl)
	}
	return ends
}

// move does what follows from a new status.
func (c *Client) move(cl *claim) {
	s := &cl.status
	switch {
	case s.State == Ended && cl.phase == over:
		delete(c.todo, cl.id)
	case s.State == Ended && cl.phase == granted:
		c.drop(cl, lost(cl, s.Reason, s.Text), false)
	case s.State == Ended:
		c.drop(cl, cl.refused(s.Reason, nil), false)
	case cl.phase == over:
		// Given up here; its end is under way.
	case s.State == Held && cl.phase != granted:
		c.grant(cl)
	case s.State == Waiting && cl.phase == asking:
		cl.phase = inLine
		c.guard()
	}
	if asked := cl.phase == granted && s.Asked != nil; asked != cl.yielding {
		cl.yielding = asked
		if asked && cl.yield != nil {
			close(cl.yield)
		} else {
			cl.yield = nil // withdrawn: the next ask is another one
		}
	}
	cl.wake()
}

// grant makes cl a hold with one handle.
func (c *Client) grant(cl *claim) {
	cl.phase, cl.live = granted, 1
	c.guard()
}

// drop ends cl for good in this client, tells everybody who is concerned, and
// if the engine may still have it, has it ended there in the background.
func (c *Client) drop(cl *claim, why *Error, later bool) {
	if why.Err == ErrLost {
		c.logger.Warn("lock lost", "claim", cl.ref().String(), "path", string(cl.path), "reason", why.Reason.String())
		if !cl.taken {
			why = cl.refused(why.Reason, why.Cause)
		}
	}
	cl.result = why
	c.retire(cl)
	cl.first.finish(handleLost)
	for _, h := range cl.more {
		h.finish(handleLost)
	}
	if later && !c.closed {
		c.todo[cl.id] = cl
		c.kick()
	}
}

// retire takes cl out of what is wanted.
func (c *Client) retire(cl *claim) {
	cl.phase, cl.live = over, 0
	delete(c.claims, cl.id)
	if len(c.ends) > 0 {
		delete(c.ends, cl)
	}
	cl.wake()
}

// ending is why cl, which is over, ended: a loss, a refusal, or its release.
func (cl *claim) ending() *Error {
	if cl.result != nil {
		return cl.result
	}
	return &Error{Op: "hold", Path: cl.path, Err: ErrNotHeld, Reason: Released}
}

// lost is the error of a hold that was lost.
func lost(cl *claim, why Reason, text string) *Error {
	return &Error{Op: "hold", Path: cl.path, Err: ErrLost, Reason: why, Detail: text}
}

// outlive ends cl, which has passed its own end in this client. The report to the engine states
// that end: so the engine holds the claim for the margin, and ends it for the same reason.
func (c *Client) outlive(cl *claim, end ending) {
	text := ""
	if asked := cl.status.Asked; asked != nil && asked.Reason == end.why {
		text = asked.String()
	}
	cl.lapse = Lapse{ID: cl.id, Reason: end.why, EndsAt: end.endsAt}
	c.drop(cl, lost(cl, end.why, text), true)
}

// endRequest returns the Ending that ends cl, which is over in this client, at the engine.
func (cl *claim) endRequest() Ending {
	if cl.lapse.Reason != NoReason {
		return Ending{Kind: Lapsed, Lapse: cl.lapse}
	}
	return Ending{Kind: Release, ID: cl.id}
}

// refused is the error of a claim that ended before anybody had it, with the
// evidence that is there. "Taken" and "can't be reached" are never the same.
func (cl *claim) refused(why Reason, cause error) *Error {
	s := &cl.status
	e := &Error{Op: cl.op, Path: cl.path, Err: ErrNotAcquired, Reason: why, Detail: s.Text,
		Blocked: s.Blockers, Place: s.Position, ETA: s.ETA, Cause: cause}
	if e.Detail == "" && slices.ContainsFunc(s.Blockers, cl.isOwn) {
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

// isOwn reports whether b is a hold of the same client.
func (cl *claim) isOwn(b Blocker) bool {
	return b.Why == HeldBy && b.Ref.Session == cl.client.session.ID
}

// wrap gives err the operation and the path, once.
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

// refusals are the answers that repeating doesn't change.
var refusals = [...]error{ErrInvalid, ErrUnsupported, ErrDenied, ErrDeadlock, ErrNotAcquired, ErrNotHeld}

// isRefusal reports whether err is an answer that repeating doesn't change.
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
