package lockkeeper

import (
	"context"
	"iter"
	"slices"
	"time"
)

// Engine is the one seam of Lockkeeper: whatever keeps claims is an Engine.
// Programs use a [Client]; those who build engines implement this and pass
// enginetest.
//
// No method waits for a lock: a claim that must wait is answered with the state
// Waiting, and what becomes of it is told by notify and by Renew. Every ctx
// bounds one round trip, and every call may be repeated after an unknown outcome
// (ErrUnavailable). All methods are safe for concurrent use. Keys are values, so
// whoever knows one can act for the session: another goroutine, another process.
//
// Refusals are errors that match the sentinels of this package; an engine that
// can't be reached answers ErrUnavailable and nothing else.
type Engine interface {
	// Guarantees is what this engine claims. It is constant.
	Guarantees() Guarantees

	// Attach opens the session, or takes it over if it is open: under a new
	// epoch, with its whole TTL ahead, or what was promised before if that is
	// longer (R11). Claims of it that s does not name end as
	// Superseded, and older keys are refused with ErrSession from then on (R19).
	//
	// notify is called with statuses of the session's claims that changed. It is
	// a hint: it may be late, doubled, out of order (compare Status.Change) or
	// missing, except in engines within the process, where none is missing. It
	// must not block and must not call the engine. It may be nil. It stays in
	// force until the session is taken over or left.
	Attach(ctx context.Context, s Session, notify func([]Status)) (Lease, error)

	// Renew gives the session its whole TTL again, counted from when the engine
	// received it, and tells what its claims must know. ErrSession if the
	// session has ended, or must resume by Attach.
	Renew(ctx context.Context, k Key) (Lease, error)

	// Claim makes the claim that w describes, or amends it, or answers again
	// what became of it (R16). Taken is no error: the status is Ended, with the
	// reason and who stood in the way, or Waiting; List tells why it waits.
	// w.Targets belongs to the engine from then on and must not be changed.
	Claim(ctx context.Context, k Key, w Want) (Status, error)

	// End ends what e names. Ending what has ended already is not an error;
	// ending what never was is ErrNotHeld. A claim is ended only after it was
	// answered, or under a newer epoch.
	End(ctx context.Context, k Key, e Ending) error

	// List yields what q selects, each with evidence and place. With q.Follow it
	// goes on with every change until ctx ends; a follower that is too slow
	// misses intermediate states, never the last one.
	List(ctx context.Context, q Query) iter.Seq2[Status, error]

	// Close leaves the engine. Sessions that were not left live on until their
	// TTL ends, where the engine outlives this process.
	Close() error
}

// Session is the unit of liveness (R11): while it is renewed within its TTL its
// claims live, and when it ends they all end.
type Session struct {
	ID    string        `json:"id"`  // at most MaxSessionID bytes; whoever knows it can take the session over
	TTL   time.Duration `json:"ttl"` // MinTTL to MaxTTL; 0 only where Guarantees.NoExpiry
	Named []uint64      `json:"-"`   // the claims that it still has, those in flight included (R19)

	// Outlive: it lives by its TTL alone, also when none of its processes is
	// left. For sessions that several short programs use one after the other.
	// Engines that know nothing of processes ignore it.
	Outlive bool `json:"outlive,omitempty"`

	Label
}

// Check finds everything that is wrong with s, in one error that is an
// [ErrInvalid]; nil if there is nothing. A TTL of 0 passes if noExpiry is set.
func (s *Session) Check(noExpiry bool) error {
	var c checker
	c.text("session id", s.ID, MaxSessionID)
	if s.ID == "" {
		c.addf("the session has no id")
	}
	if (s.TTL < MinTTL && (s.TTL != 0 || !noExpiry)) || s.TTL > MaxTTL {
		c.addf("TTL %s is out of range: %s to %s", spoken(s.TTL), spoken(MinTTL), spoken(MaxTTL))
	}
	c.label(s.Label)
	return c.err()
}

// Key is the right to act for a session: its id, and the epoch of the Attach
// that gave it.
type Key struct {
	Session string
	Epoch   uint64
}

// Lease is the answer to Attach and Renew: the truth about a session, of which
// notifications are only hints. Durations count from when the call was sent.
type Lease struct {
	Key    Key
	TTL    time.Duration // the session ends so long after, unless renewed; 0: it does not. Longer than Session.TTL if a former attach promised more
	Claims []Status      // every claim that has an end or an ask, and every one that changed within the last TTL
}

// EndingKind says what an [Ending] ends.
type EndingKind uint8

const (
	// Release ends the claim ID of the session: a hold is released, a waiting claim cancelled.
	Release EndingKind = iota + 1
	// Leave ends the session and all its claims.
	Leave
	// Revoke, by an operator, asks the holder of Ref to yield and takes the hold
	// after its TTL (DefaultTTL if it has none); with Force, and for a waiting
	// claim, at once (R18).
	Revoke
	// Thaw, by an operator, ends the freeze of Path.
	Thaw
)

// Ending says what [Engine.End] should end.
type Ending struct {
	Kind  EndingKind
	ID    uint64 // of Release
	Ref   Ref    // of Revoke
	Path  Path   // of Thaw
	Force bool   // of Revoke: at once, without asking
	Label        // of Revoke: who and why
}

// Check finds everything that is wrong with e by itself, in one error that is an
// [ErrInvalid]; nil if there is nothing.
func (e *Ending) Check() error {
	var c checker
	switch e.Kind {
	case Release, Leave:
	case Revoke:
		c.label(e.Label)
	case Thaw:
		if err := e.Path.check(); err != nil {
			c.addf("%s", err.(*Error).Detail)
		}
	default:
		c.addf("ending %d is none of release, leave, revoke, thaw", e.Kind)
	}
	return c.err()
}

// Query selects what [Engine.List] yields, in the order of grant rule R4: holds
// first, then who waits, then freezes. The zero Query selects everything.
type Query struct {
	Meets   Path   // what meets this path: at it, above it or below it
	Session string // what this session has
	Ref     Ref    // this claim alone, also for a while after its end
	Follow  bool   // go on with every change
}

// Selects reports whether q selects s. It is for engines whose followers sort out
// what they tell.
func (q Query) Selects(s *Status) bool {
	if q.Session != "" && q.Session != s.Ref.Session || q.Ref != (Ref{}) && q.Ref != s.Ref {
		return false
	}
	return q.Meets == "" || slices.ContainsFunc(s.Grants, func(g Grant) bool {
		return q.Meets.Covers(g.Path) || g.Path.Covers(q.Meets)
	})
}
