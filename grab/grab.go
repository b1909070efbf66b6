package grab

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// Reservations gives names their claims at an engine. It stores nothing itself, and is safe for
// concurrent use. The caller closes the engine.
type Reservations struct{ engine lockkeeper.Engine }

// New returns the reservations of an engine.
func New(e lockkeeper.Engine) *Reservations { return &Reservations{engine: e} }

// session returns n's session.
func (p *Reservations) session(n Name) *solo.Session {
	return &solo.Session{Engine: p.engine, ID: n.Session(), Rivals: "other processes that call themselves " + n.As}
}

// Answer is the state of a name's reservation.
type Answer struct {
	// Status is the claim of the name: Held, or Waiting with Position and Blockers. The State is 0
	// if the name has no claim. It is Ended after a Try that was not granted, and after a Wait that
	// ended its claim; Position and Blockers then show the state at that end.
	lockkeeper.Status

	Token    Token         // of the hold, for Confirm; zero if the name holds nothing
	TTL      time.Duration // until the claim ends without a repeat, counted from the call; 0 from Look
	Lost     error         // from Grab, once: an ErrLost that says how an earlier hold of the name ended
	Hopeless bool          // from Wait: it stopped early, because others hold for longer than it may wait

	// OwnHolds, from Grab and Wait, are the paths of another reservation of the same As that blocks
	// this one: the caller waits for itself. Nil if it does not.
	OwnHolds []lockkeeper.Path

	renewed time.Time // when the renewal was sent from which the engine counts the TTL; zero if there was none
}

// Grab makes the claim that r describes, or renews it. A repeat must ask for the same modes and
// units; otherwise the error is an ErrInvalid that describes the existing claim. A repeat may
// change the limit of a waiting claim (R16) and raise the priority; Grab ignores a lower priority,
// another note, and another limit of permits that are held: a limit is the caller's own view (R7),
// and the caller may not know yet that the claim was granted.
func (p *Reservations) Grab(ctx context.Context, r Request) (Answer, error) {
	return p.attempt(ctx, r, 0, &attempt{})
}

// An attempt records what one Grab has done.
type attempt struct {
	lost   error          // how an earlier hold ended
	key    lockkeeper.Key // of the claim that it sent; zero if it sent none
	ticket uint64         // of that claim; 0 if the outcome is unknown
}

// attempt is Grab, and records the claim that it sent in t. In an outage it takes little longer than wait.
func (p *Reservations) attempt(ctx context.Context, r Request, wait time.Duration, t *attempt) (Answer, error) {
	err := r.Check()
	want := r.want()
	if err == nil {
		err = p.engine.Guarantees().Refuse(&want)
	}
	n := r.Name()
	if outage := lockkeeper.OutageOf(p.engine); err == nil && outage != nil {
		if wait <= 0 {
			err = outage
		}
		bounded, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		ctx = bounded
	} else if wait <= 0 {
		ctx = roundtrip.EndInOutage(ctx)
	}
	if err != nil {
		return Answer{}, n.wrap("grab", err)
	}
	a, err := p.answer(ctx, n, func(ctx context.Context) (Answer, error) { return p.grab(ctx, n, want, r.Terms, t) })
	a.Lost = t.lost
	if err == nil {
		a.OwnHolds = p.ownHolds(ctx, n, a)
	}
	return a, n.wrap("grab", err)
}

// grab is one try of attempt.
func (p *Reservations) grab(ctx context.Context, n Name, want lockkeeper.Want, terms Terms, t *attempt) (a Answer,
	err error) {
	s := p.session(n)
	o, sent, err := s.Obtain(ctx, terms.ttl(), want, func(st lockkeeper.Status) error { return repeats(st, want) })
	if sent {
		t.key, t.ticket = o.Key, o.Ticket
		defer func() { undo(ctx, s, o.Key, err) }()
	}
	if err == solo.ErrAgain && o.State == lockkeeper.Ended {
		t.lost = n.lostError(o.Status)
	}
	switch {
	case err != nil:
	case sent && o.State == lockkeeper.Ended: // Request.Try: it was never in the queue
		o.Position = 0
		return Answer{Status: o.Status}, nil
	case sent:
		err = p.allowed(ctx, n, terms, o)
	default:
		o.Status, err = p.adapt(ctx, o.Key, o.Status, want)
	}
	if err != nil {
		return Answer{}, err
	}
	return p.answerLive(ctx, n, terms, o)
}

// answerLive returns the answer for a live claim. It queries the position of a waiting claim, and
// extends the session of a held claim to Terms.For.
func (p *Reservations) answerLive(ctx context.Context, n Name, terms Terms, o solo.Observation) (Answer, error) {
	s := p.session(n)
	if o.State == lockkeeper.Waiting && o.Position == 0 {
		var err error
		if o, err = s.Complete(ctx, o); err != nil {
			return Answer{}, err
		}
	}
	if o.State == lockkeeper.Held && terms.For > o.TTL {
		longer, err := s.Attach(ctx, terms.For, n.As, o.Key.Epoch)
		if err != nil {
			return Answer{}, err
		}
		if longer.State != lockkeeper.Held || longer.Ticket != o.Ticket {
			if longer.State == 0 || longer.State == lockkeeper.Waiting {
				// Another process has released the hold. The long TTL was only for that hold, and
				// a waiting claim must not keep it.
				_ = s.Leave(ctx, longer.Key)
			}
			return Answer{}, solo.ErrAgain
		}
		o = longer
	}
	return Answer{Status: o.Status, TTL: o.TTL, renewed: o.Renewed}, nil
}

// adapt amends a live claim as a repeat asks, as far as Grab allows, and returns its status.
func (p *Reservations) adapt(ctx context.Context, k lockkeeper.Key, st lockkeeper.Status,
	want lockkeeper.Want) (lockkeeper.Status, error) {
	if err := repeats(st, want); err != nil {
		return st, err
	}
	targets, limits, _ := compare(st, want)
	if !limits && want.Priority <= st.Priority {
		return st, nil
	}
	want.Targets = targets
	want.Revision, want.Priority, want.Label = st.Revision+1, max(want.Priority, st.Priority), st.Label
	want.Wait = lockkeeper.Forever // a Try does not end an existing claim
	now, err := p.engine.Claim(ctx, k, want)
	if !errors.Is(err, lockkeeper.ErrInvalid) {
		return now, err
	}
	later, err := solo.Look(ctx, p.engine, st.Ref)
	if err != nil || later.State != st.State || later.Ticket != st.Ticket || later.Revision != st.Revision {
		return st, cmp.Or(err, solo.ErrAgain) // such as granted meanwhile, so that it takes no other limit
	}
	return st, lockkeeper.Invalid("%s %s already, and was grabbed for another duration: "+
		"give the same, or release it first", want.As, has(st))
}

// repeats returns the refusal if want does not repeat the live claim st.
func repeats(st lockkeeper.Status, want lockkeeper.Want) error {
	if _, _, same := compare(st, want); same {
		return nil
	}
	return lockkeeper.Invalid("%s %s already: asking again for %s does not change that; "+
		"ask for the same, or release it first", want.As, has(st), join(want.Targets))
}

// compare reports whether want repeats a live claim. It returns the targets that want gives that
// claim, and whether limits differ: a waiting claim takes another limit, a held one keeps its own.
func compare(st lockkeeper.Status, want lockkeeper.Want) (targets []lockkeeper.Target, limits, same bool) {
	if len(st.Grants) != len(want.Targets) {
		return nil, false, false
	}
	for i, t := range want.Targets {
		has := st.Grants[i].Target
		if has.Limit != t.Limit && has.Mode == t.Mode {
			if st.State == lockkeeper.Waiting {
				limits = true
				has.Limit = t.Limit
			} else {
				t.Limit = has.Limit
			}
		}
		if has != t {
			return nil, false, false
		}
		targets = append(targets, t)
	}
	return targets, limits, true
}

// has describes a claim: "holds shared db", "waits for exclusive db".
func has(st lockkeeper.Status) string {
	targets := make([]lockkeeper.Target, len(st.Grants))
	for i, g := range st.Grants {
		targets[i] = g.Target
	}
	if st.State == lockkeeper.Waiting {
		return "waits for " + join(targets)
	}
	return "holds " + join(targets)
}

func join(targets []lockkeeper.Target) string {
	texts := make([]string, len(targets))
	for i, t := range targets {
		texts[i] = t.String()
	}
	return strings.Join(texts, ", ")
}

// lostError returns the ErrLost of a claim that has ended; nil if a caller with the same name ended
// it.
func (n Name) lostError(st lockkeeper.Status) error {
	if byItself(st.Reason) {
		return nil
	}
	return &lockkeeper.Error{Path: n.firstPath(), Err: lockkeeper.ErrLost, Reason: st.Reason, Detail: st.Text}
}

// byItself reports whether a caller with the claim's name ended it, or limited its wait.
func byItself(r lockkeeper.Reason) bool {
	return r == lockkeeper.Released || r == lockkeeper.Yielded || r == lockkeeper.Cancelled || r == lockkeeper.TimedOut
}

// answer repeats do as solo.Session.Do, and adds the token of a hold. It compares the engine's
// epoch before and after do: only if both are equal does the answer belong to that epoch.
func (p *Reservations) answer(ctx context.Context, n Name, do func(context.Context) (Answer, error)) (a Answer,
	err error) {
	err = p.session(n).Do(ctx, func(ctx context.Context) (err error) {
		epoch := p.engine.Guarantees().Epoch
		if a, err = do(ctx); p.engine.Guarantees().Epoch != epoch && !errors.Is(err, lockkeeper.ErrUnavailable) {
			return solo.ErrAgain
		}
		if a.State == lockkeeper.Held {
			a.Token = Token{Fence: a.Fence, Epoch: epoch}
		}
		return err
	})
	if err != nil {
		return Answer{}, err
	}
	return a, nil
}

// wrap adds the operation and the path to an error; nil stays nil.
func (n Name) wrap(op string, err error) error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) {
		return err
	}
	named := *e
	named.Op, named.Path = op, n.firstPath()
	return &named
}
