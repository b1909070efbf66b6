package lockkeeper

import (
	"context"
	"iter"
	"slices"
	"time"
)

// An Engine keeps claims. Programs use a [Client] on top of it; authors of engines implement
// these seven methods and pass the suite of package enginetest.
//
// No method waits for a lock. A claim that must wait is answered with the state Waiting, and
// notify and Renew report its grant or its end. Every ctx bounds one round trip, and a caller may
// repeat every call whose outcome is unknown (ErrUnavailable). All methods are safe for concurrent
// use. Keys are values: everybody who knows one can act for the session, also from another
// goroutine or process.
//
// Refusals are errors that match the sentinels of this package. An engine that can't be reached
// returns ErrUnavailable and nothing else.
type Engine interface {
	// Guarantees returns what this engine declares. It is constant, except for Epoch, which
	// changes when a remote engine starts again: read after an answer, it is the epoch of that
	// answer or of a later one.
	Guarantees() Guarantees

	// Attach opens the session, or takes it over if it is open, under a new epoch. The session then
	// has its whole TTL ahead, or the time that was promised before if that is longer (R11). Claims
	// that s does not name end as Superseded, or for the reason of their lapse if they lapsed.
	// Older keys are refused with ErrSession from then on (R19).
	//
	// Only a caller that knows the epoch of an open session, or of one that has to resume, takes it
	// over. If s.Epoch is another one, Attach changes nothing and returns an ErrSession whose
	// Error.Epoch is the present epoch. So an Attach that arrives twice, or after its successor,
	// does nothing. A caller that means to take the session over, or that repeats an Attach whose
	// answer was lost, attaches again with that epoch.
	//
	// The engine calls notify with statuses of the session's claims that changed. They are hints:
	// they may be late, doubled, out of order (compare Status.Change) or missing; engines within
	// the process lose none. A call without statuses means that hints may be missing, and that a
	// Renew reports the truth. notify must not block and must not call the engine. It may be nil.
	// It is called until the session is taken over or left.
	Attach(ctx context.Context, s Session, notify func([]Status)) (Lease, error)

	// Renew gives the session its whole TTL again, counted from when the engine received the call,
	// and reports the state of its claims. It returns ErrSession if the session has ended, or must
	// resume by Attach.
	Renew(ctx context.Context, k Key) (Lease, error)

	// Claim makes the claim that w describes, amends it, or returns the status of a repeated one
	// (R16). It does not make a claim with an id below the highest Key.LowestOpen: if it does not
	// know that claim, it returns ErrNotHeld. A claim that is taken is no error: its status is
	// Ended, with the reason and the blockers, or Waiting; List says why it waits. w.Targets
	// belongs to the engine from then on and must not be changed.
	Claim(ctx context.Context, k Key, w Want) (Status, error)

	// End ends the claim, session or freeze that e names. It returns nil if that has ended already,
	// and ErrNotHeld if it never existed. A freeze has no id, and an engine forgets it with its end:
	// a Thaw that is repeated after a lost answer may return ErrNotHeld (R18). A caller ends a claim
	// only after the engine has answered the claim, or under a newer epoch.
	End(ctx context.Context, k Key, e Ending) error

	// List yields the claims that q selects, each with blockers and position unless q is brief. A
	// claim that changes while a long list is yielded may lack both. With q.Follow, List goes on
	// with every change until ctx ends, in the order of the changes. A watcher that is too slow
	// misses intermediate states, never the last one. The engine ends the list of a watcher that
	// is much too slow with ErrUnavailable: the watcher must call List again.
	List(ctx context.Context, q Query) iter.Seq2[Status, error]

	// Close leaves the engine. Sessions that were not left live until their TTL ends, if the engine
	// outlives this process.
	Close() error
}

// Session is the unit of liveness (R11): its claims live while it is renewed within its TTL, and
// end with it.
type Session struct {
	ID     string        `json:"id"`  // at most MaxSessionID bytes; everybody who knows it can take the session over
	TTL    time.Duration `json:"ttl"` // MinTTL to MaxTTL; 0 only where Guarantees.NoExpiry
	Named  []uint64      `json:"-"`   // the claims that its client still wants, including those in flight (R19)
	Lapsed []Lapse       `json:"-"`   // claims that lapsed at its client (R12)
	Epoch  uint64        `json:"-"`   // the epoch that it takes over, 0 for none; ignored if it is not open (R19)

	// Outlive: the session lives by its TTL alone, even if none of its processes is left. It is
	// for sessions that several short programs use one after the other. Engines that do not watch
	// processes ignore it.
	Outlive bool `json:"outlive,omitempty"`

	Label
}

// Check returns an [ErrInvalid] with everything that is wrong with s; nil if s is valid. A TTL of
// 0 is valid if noExpiry is set.
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

// Key is the right to act for a session: its id, and the epoch of the Attach that returned it. Keys
// with the same id and epoch are the same key. LowestOpen and Acked tell the engine, with every
// call, which answers the client has received.
type Key struct {
	Session string
	Epoch   uint64

	// LowestOpen is the lowest id with which the client may still begin a claim: all claims with
	// lower ids are answered. The engine refuses a later request with a lower id with ErrNotHeld,
	// unless it knows the claim. It may forget claims below LowestOpen whose end the session has
	// acknowledged (R16). Under one epoch the highest value counts; 0 states nothing. Engines that
	// do not claim FeatureOnce may ignore it.
	LowestOpen uint64

	// Acked is the Lease.Number of the latest lease that the client has processed; 0 states
	// nothing. Once a session has stated it, the engine assumes that the holder knows of an end
	// only after the session has acknowledged a lease with that end. So if an answer is lost, the
	// engine does not take a hold for over while its holder still relies on it (R12).
	Acked uint64
}

// Lease is the answer to Attach and Renew: the truth about a session, where notifications are
// only hints. Durations count from when the call was sent.
type Lease struct {
	Key Key

	// TTL is the time after which the session ends unless it is renewed; 0: it never ends. It is
	// longer than Session.TTL if an earlier Attach promised more.
	TTL time.Duration

	// Number is the value for Key.Acked. It rises with every lease of the session, through all its
	// epochs. It is 0 if the engine ignores acknowledgements.
	Number uint64

	// EndsAt is the end of the session in engine time (R20); 0 if it has no end. A client only
	// repeats it in Lapse.EndsAt, and must not compare it with any clock.
	EndsAt time.Duration

	// Claims has every claim that has an end or was asked to yield, and every claim that changed
	// within the last TTL.
	Claims []Status
}

// EndingKind says what an [Ending] ends.
type EndingKind uint8

const (
	// Release ends the claim ID of the session: it releases a hold, or cancels a waiting claim.
	Release EndingKind = iota + 1
	// Leave ends the session and all its claims.
	Leave
	// Revoke, by an operator, asks the holder of Ref to yield, and ends the hold after the TTL of
	// the holder's session (DefaultTTL if it has none). With Force it ends the hold at once; it
	// always ends a waiting claim at once (R18).
	Revoke
	// Thaw, by an operator, ends the freeze of Path. Engines keep no Label of it; audit logs do.
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
	Label        // of Revoke and Thaw: the operator and the purpose
}

// Check returns an [ErrInvalid] with everything that is wrong with e by itself; nil if e is valid.
func (e *Ending) Check() error {
	var c checker
	switch e.Kind {
	case Release, Leave:
	case Revoke:
		c.label(e.Label)
	case Thaw:
		c.label(e.Label)
		if err := e.Path.checkFreezable(); err != nil {
			c.addf("%s", err.(*Error).Detail)
		}
	case Lapsed:
		e.Lapse.check(&c)
	default:
		c.addf("ending %d: allowed are release, leave, revoke, thaw, lapsed", e.Kind)
	}
	return c.err()
}

// Query selects what [Engine.List] yields, in the order of rule R4: holds, then waiting claims,
// then freezes. The zero Query selects everything.
type Query struct {
	Meets   Path   // claims at this path, above it or below it
	Session string // claims of this session
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
	// cross a network. An engine calls it without holding any of its own mutexes.
	Sees func(*Status) bool `json:"-"`

	// Keep reports whether an engine may keep n more statuses that the caller has not
	// read; nil: as many as the engine itself allows. With a negative n an engine in the
	// same process gives back statuses that it no longer keeps; Keep always allows that.
	// Keep must not block: an engine may call it while it holds a mutex. It does not
	// cross a network.
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

// Selects reports whether q selects s. Engines use it to filter the changes for each watcher.
func (q Query) Selects(s *Status) bool {
	if q.Session != "" && q.Session != s.Ref.Session || q.Ref != (Ref{}) && q.Ref != s.Ref {
		return false
	}
	return q.Meets == "" || slices.ContainsFunc(s.Grants, func(g Grant) bool {
		return q.Meets.Covers(g.Path) || g.Path.Covers(q.Meets)
	})
}
