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
	// Guarantees is what this engine claims. It is constant, except for Epoch, which
	// changes when a remote engine starts again: read after an answer, it is the epoch
	// of that answer or of a later one.
	Guarantees() Guarantees

	// Attach opens the session, or takes it over if it is open: under a new
	// epoch, with its whole TTL ahead, or what was promised before if that is
	// longer (R11). Claims of it that s does not name end as Superseded, or for the
	// reason of their lapse if they lapsed. Older keys are refused with ErrSession
	// from then on (R19).
	//
	// Only who knows the epoch of an open session takes it over. Is it open,
	// or has it to resume, under another epoch than s.Epoch, then the answer is an
	// ErrSession whose Error.Epoch is the present one, and nothing was changed. So
	// an Attach that arrives twice, or after its successor, does nothing. Whoever
	// means to take the session over, or repeats an Attach of which the answer was
	// lost, attaches again with that epoch.
	//
	// notify is called with statuses of the session's claims that changed. It is
	// a hint: it may be late, doubled, out of order (compare Status.Change) or
	// missing, except in engines within the process, where none is missing. Called
	// with no statuses it says that some may have been missed: a Renew tells. It
	// must not block and must not call the engine. It may be nil. It stays in
	// force until the session is taken over or left.
	Attach(ctx context.Context, s Session, notify func([]Status)) (Lease, error)

	// Renew gives the session its whole TTL again, counted from when the engine
	// received it, and tells what its claims must know. ErrSession if the
	// session has ended, or must resume by Attach.
	Renew(ctx context.Context, k Key) (Lease, error)

	// Claim makes the claim that w describes, or amends it, or answers again
	// what became of it (R16); an id below the highest Key.LowestOpen is begun no more,
	// and if it is not known refused with ErrNotHeld. Taken is no error: the status is Ended, with the
	// reason and who stood in the way, or Waiting; List tells why it waits.
	// w.Targets belongs to the engine from then on and must not be changed.
	Claim(ctx context.Context, k Key, w Want) (Status, error)

	// End ends what e names. Ending what has ended already is not an error;
	// ending what never was is ErrNotHeld. A claim is ended only after it was
	// answered, or under a newer epoch.
	End(ctx context.Context, k Key, e Ending) error

	// List yields the claims that q selects, each with evidence and position unless q is
	// brief. A claim that changes while a long list is yielded may lack both. With
	// q.Follow it goes on with every change until ctx ends, in the order of the changes.
	// A watcher that is too slow misses intermediate states, never the last one. The
	// engine ends one that is much too slow with ErrUnavailable: it must call List again.
	List(ctx context.Context, q Query) iter.Seq2[Status, error]

	// Close leaves the engine. Sessions that were not left live on until their
	// TTL ends, where the engine outlives this process.
	Close() error
}

// Session is the unit of liveness (R11): while it is renewed within its TTL its
// claims live, and when it ends they all end.
type Session struct {
	ID     string        `json:"id"`  // at most MaxSessionID bytes; whoever knows it can take the session over
	TTL    time.Duration `json:"ttl"` // MinTTL to MaxTTL; 0 only where Guarantees.NoExpiry
	Named  []uint64      `json:"-"`   // the claims that it still has, those in flight included (R19)
	Lapsed []Lapse       `json:"-"`   // claims that lapsed at its client (R12)
	Epoch  uint64        `json:"-"`   // the epoch that it takes over, 0 for none; ignored if it is not open (R19)

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
	c.name("session id", s.ID, MaxSessionID)
	if s.ID == "" {
		c.addf("the session has no id")
	}
	if (s.TTL < MinTTL && (s.TTL != 0 || !noExpiry)) || s.TTL > MaxTTL {
		c.addf("TTL %s is out of range: %s to %s", durationText(s.TTL), durationText(MinTTL), durationText(MaxTTL))
	}
	for i := range s.Lapsed {
		s.Lapsed[i].check(&c)
	}
	c.label(s.Label)
	return c.err()
}

// Lapse reports that a client stopped using a hold because its end is near. The client
// stops one margin before the end that the engine stated for the hold, or, without
// such an end, one margin before its session ends. The claim stays held for that
// margin: it ends at the stated end, for that reason, even if the engine has withdrawn
// the end meanwhile (R12).
type Lapse struct {
	ID     uint64
	Reason Reason        // Stolen, Overdue, Revoked, or Expired for the end of the session
	EndsAt time.Duration // as Asked.EndsAt or Lease.EndsAt stated it; may be 0 for Overdue: the engine knows it
}

func (l *Lapse) check(c *checker) {
	switch l.Reason {
	case Stolen, Overdue, Revoked, Expired:
	default:
		c.addf("claim %d lapsed for the reason %q: allowed are stolen, overdue, revoked, expired",
			l.ID, l.Reason.String())
	}
	if l.EndsAt < 0 || l.EndsAt == Forever {
		c.addf("claim %d lapsed for an end at %s of engine time: repeat the end that the engine stated", l.ID, l.EndsAt)
	}
}

// Key is the right to act for a session: its id, and the epoch of the Attach
// that gave it. Two keys are one if those are the same.
type Key struct {
	Session string
	Epoch   uint64

	// LowestOpen is what its user states with a call: no claim with a lower id will
	// be begun any more, since all of them are answered. A claim with a lower id
	// that arrives nevertheless, however late, is refused with ErrNotHeld unless
	// the engine knows it, and what the session knows to have ended the engine
	// need not remember (R16). Under one epoch the highest counts; 0 states nothing.
	LowestOpen uint64

	// Acked is the Lease.Number of the latest lease that its user has taken in, with
	// all that it told; 0 states nothing. A session that states it is taken to know
	// of an end only when it has stated a lease that told it, so that no lost answer
	// makes a hold pass for over that its holder still counts on (R12).
	Acked uint64
}

// Lease is the answer to Attach and Renew: the truth about a session, of which
// notifications are only hints. Durations count from when the call was sent.
type Lease struct {
	Key Key
	// the session ends so long after, unless renewed; 0: it does not. Longer than Session.TTL if a
	// former attach promised more
	TTL time.Duration
	// rises with every lease of the session, also over its epochs: for Key.Acked; 0 if the engine does
	// not look at that
	Number uint64

	// EndsAt is the end of the session in engine time (R20); 0 if it has no end. A
	// client only repeats it in Lapse.EndsAt; it must not compare it with any clock.
	EndsAt time.Duration

	Claims []Status // every claim that has an end or an ask, and every one that changed within the last TTL
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
	// Lapsed reports that the client stopped using the hold that Lapse names.
	Lapsed
)

// Ending says what [Engine.End] should end.
type Ending struct {
	Kind  EndingKind
	ID    uint64 // of Release
	Ref   Ref    // of Revoke
	Path  Path   // of Thaw
	Force bool   // of Revoke: at once, without asking
	Lapse Lapse  // of Lapsed
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
		if err := e.Path.checkFreezable(); err != nil {
			c.addf("%s", err.(*Error).Detail)
		}
	case Lapsed:
		e.Lapse.check(&c)
	default:
		c.addf("ending %d is none of release, leave, revoke, thaw, lapsed", e.Kind)
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

	// Brief leaves out position, estimate, wait reasons and blockers, whose cost to an
	// engine can grow with the queue. It is for permanent watchers of many claims.
	Brief bool

	// Stale permits old statuses. An engine that can't make its present state durable,
	// such as on a full disk, yields its last durable state and then an Error with
	// Stale set. Without the permission, or without such a state, it yields only an
	// ErrUnavailable. Stale is for display: no program may rely on such an answer. Stale
	// has no effect with Follow.
	Stale bool

	// Sees reports whether the caller may see a status; nil: it may see every status. An
	// engine may leave out the others, to save the cost of their evidence. Sees does not
	// cross a network. An engine never calls it with a lock of its own held.
	Sees func(*Status) bool `json:"-"`

	// Keep reports whether an engine may keep n more statuses that the caller has not
	// read; nil: as many as the engine itself allows. With a negative n an engine in the
	// same process gives back statuses that it no longer keeps; Keep always allows that.
	// Keep must not block: an engine may call it with a lock held. It does not cross a
	// network.
	Keep func(n int) bool `json:"-"`
}

// Check returns an [ErrInvalid] with all that is wrong with q; nil if q is valid. Every engine
// checks queries, because they may come from anybody.
func (q *Query) Check() error {
	var c checker
	if q.Meets != "" {
		if err := q.Meets.checkFreezable(); err != nil {
			c.addf("%s", err.(*Error).Detail)
		}
	}
	c.text("session id", q.Session, MaxSessionID)
	c.text("claim", q.Ref.Session, MaxSessionID)
	return c.err()
}

// MayKeep calls Keep, and reports true if that is nil.
func (q *Query) MayKeep(n int) bool { return q.Keep == nil || q.Keep(n) }

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
