package grab

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// Places are the places and holds of an engine. It keeps nothing itself, and is
// safe for concurrent use. Closing the engine is the caller's.
type Places struct{ engine lockkeeper.Engine }

// New returns the places of an engine.
func New(e lockkeeper.Engine) *Places { return &Places{engine: e} }

// session returns n's session.
func (p *Places) session(n Name) *solo.Session {
	return &solo.Session{Engine: p.engine, ID: n.Session(), Rivals: "other processes that call themselves " + n.As}
}

// Answer is what a name has.
type Answer struct {
	// Status is its claim: Held, or Waiting with its Place and who is in the way.
	// The State is 0 if the name has no claim. It is Ended after a try without effect, or a
	// Wait whose place was given back; Place and Blockers then show the state at that end.
	lockkeeper.Status

	Token     Token         // of its hold, for Confirm; zero if it holds nothing
	TTL       time.Duration // for how long from when it was asked, if nobody repeats it; of Look 0
	Lost      error         // of Grab: an ErrLost that tells what became of the hold that the name had; told once
	Outlasted bool          // of Wait: it did not wait any longer, since others hold for longer than it would wait

	// Itself, of Grab and Wait, are the other paths at which the same name holds
	// what is in its way: it waits for itself. Nil if that is not so.
	Itself []lockkeeper.Path
}

// Grab gives the name what it asks for, or a place in line, or refreshes what it
// has. A repeat that asks for other modes, units or limits than what is there is
// an ErrInvalid that says what is there; but a place takes another limit (R16),
// and either a higher priority. A lower priority, or another note, changes nothing.
func (p *Places) Grab(ctx context.Context, r Request) (Answer, error) {
	return p.take(ctx, r, &taking{})
}

// taking is what a Grab itself has done.
type taking struct {
	lost   error          // what became of an earlier hold
	key    lockkeeper.Key // under which it claimed, if it did; it may not know what came of it
	ticket uint64         // that it drew; 0 if none
}

// take is Grab.
func (p *Places) take(ctx context.Context, r Request, t *taking) (Answer, error) {
	err := r.Check()
	want := r.want()
	if err == nil {
		err = p.engine.Guarantees().Refuse(&want)
	}
	n := r.Name()
	if err != nil {
		return Answer{}, n.wrap("grab", err)
	}
	a, err := p.answer(ctx, n, func(ctx context.Context) (Answer, error) { return p.grab(ctx, n, want, r.Terms, t) })
	a.Lost = t.lost
	if err == nil {
		a.Itself = p.itself(ctx, n, a)
	}
	return a, n.wrap("grab", err)
}

// grab is one try of Grab. What it does is noted in t.
func (p *Places) grab(ctx context.Context, n Name, want lockkeeper.Want, terms Terms, t *taking) (a Answer, err error) {
	s := p.session(n)
	o, sent, err := s.Obtain(ctx, terms.ttl(), want)
	if sent {
		t.key, t.ticket = o.Key, o.Ticket
		defer func() { undo(ctx, s, o.Key, err) }()
	}
	if err == solo.ErrAgain && o.State == lockkeeper.Ended {
		t.lost = n.lost(o.Status)
	}
	switch {
	case err != nil:
	case sent && o.State == lockkeeper.Ended: // a try
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
	return p.settle(ctx, n, terms, o)
}

// settle completes the answer of a live claim: the place of one that waits, and
// the long lease of one that is held for longer than its session has.
func (p *Places) settle(ctx context.Context, n Name, terms Terms, o solo.Observation) (Answer, error) {
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
				_ = s.Leave(ctx, longer.Key) // released just now, or even grabbed anew: no place has such a promise
			}
			return Answer{}, solo.ErrAgain
		}
		o = longer
	}
	return Answer{Status: o.Status, TTL: o.TTL}, nil
}

// adapt brings a live claim up to what a repeat asks for, as far as that is
// allowed, and returns it.
func (p *Places) adapt(ctx context.Context, k lockkeeper.Key, st lockkeeper.Status,
	want lockkeeper.Want) (lockkeeper.Status, error) {
	same, limits := compare(st, want)
	if !same {
		return st,
			lockkeeper.Invalid("%s %s already: asking again for %s does not change that; ask for the same, or release it first",
				want.As, has(st), join(want.Targets))
	}
	if !limits && want.Priority <= st.Priority {
		return st, nil
	}
	want.Revision, want.Priority, want.Label = st.Revision+1, max(want.Priority, st.Priority), st.Label
	want.Wait = lockkeeper.Forever // an existing claim keeps its place
	now, err := p.engine.Claim(ctx, k, want)
	if errors.Is(err, lockkeeper.ErrInvalid) {
		err = lockkeeper.Invalid("%s %s already, and was grabbed for another time: give the same time to hold it, or "+
			"release it first", want.As, has(st))
	}
	return now, err
}

// compare reports whether want asks for what a live claim is, apart from the
// limits of one that waits, and whether those differ.
func compare(st lockkeeper.Status, want lockkeeper.Want) (same, limits bool) {
	if len(st.Grants) != len(want.Targets) {
		return false, false
	}
	for i, t := range want.Targets {
		has := st.Grants[i].Target
		if has.Limit != t.Limit && has.Mode == t.Mode && st.State == lockkeeper.Waiting {
			limits = true
			has.Limit = t.Limit
		}
		if has != t {
			return false, false
		}
	}
	return true, limits
}

// has says what a claim has: "holds shared db", "waits for exclusive db".
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

// lost is the error that tells of a claim that ended; nil if its own name ended it.
func (n Name) lost(st lockkeeper.Status) error {
	if own(st.Reason) {
		return nil
	}
	return &lockkeeper.Error{Path: n.what(), Err: lockkeeper.ErrLost, Reason: st.Reason, Detail: st.Text}
}

// own reports whether its own name ended the claim, or only tried.
func own(r lockkeeper.Reason) bool {
	return r == lockkeeper.Released || r == lockkeeper.Yielded || r == lockkeeper.Cancelled || r == lockkeeper.TimedOut
}

// answer returns the answer of do, as repeat does it, with the token of a hold. It compares the
// engine's epoch before and after do: only if both are equal does the answer belong to that epoch.
func (p *Places) answer(ctx context.Context, n Name, do func(context.Context) (Answer, error)) (a Answer, err error) {
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

// wrap names the operation and the path in an error; nil stays nil.
func (n Name) wrap(op string, err error) error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) {
		return err
	}
	named := *e
	named.Op, named.Path = op, n.what()
	return &named
}
