package grab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

const (
	roundTrip = 10 * time.Second // an engine that has not answered by then is taken for unreachable
	mostTries = 60               // of one operation, when others of its name come between
	longest   = time.Second      // to wait before the next
)

// Places are the places and holds of an engine. It keeps nothing itself, and is
// safe for concurrent use. Closing the engine is the caller's.
type Places struct{ engine lockkeeper.Engine }

// New returns the places of an engine.
func New(e lockkeeper.Engine) *Places { return &Places{engine: e} }

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

// errAgain: another process of the same name came between two exchanges.
var errAgain = errors.New("another process of the same name came between")

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
func (p *Places) grab(ctx context.Context, n Name, want lockkeeper.Want, terms Terms, t *taking) (Answer, error) {
	lease, st, err := p.attach(ctx, n, terms.ttl(), 0)
	if err != nil {
		return Answer{}, err
	}
	// A longer promise than it asks for is of somebody whose hold was released just
	// then (see settle). Nothing but an end takes that back (R11), and no claim is
	// made under it.
	promised := st.State == 0 && lease.TTL > terms.ttl()
	switch {
	case promised:
		st, err = p.look(ctx, n)
	case st.State == 0:
		t.key = lease.Key
		if st, err = p.engine.Claim(ctx, lease.Key, want); err == nil {
			t.ticket = st.Ticket
			err = p.allowed(ctx, n, terms, lease, st)
		}
		p.undo(ctx, lease.Key, err)
		if err == nil && want.Wait == 0 && st.State == lockkeeper.Ended {
			st.Position = 0 // a try does not queue
			return Answer{Status: st}, p.leave(ctx, lease.Key)
		}
	case st.State != lockkeeper.Ended:
		st, err = p.adapt(ctx, lease.Key, st, want)
	}
	if err != nil {
		return Answer{}, err
	}
	if promised || st.State == lockkeeper.Ended {
		// The engine remembers what has ended, so that its id can't be used anew
		// (R16). A new session of the same name begins without the past.
		if err := p.leave(ctx, lease.Key); err != nil {
			return Answer{}, err
		}
		if st.State == lockkeeper.Ended {
			t.lost = n.lost(st)
		}
		return Answer{}, errAgain
	}
	a, err := p.settle(ctx, n, terms, lease, st)
	if t.key == lease.Key {
		p.undo(ctx, lease.Key, err)
	}
	return a, err
}

// attach opens n's session or takes it over, and returns its claim; the State is
// 0 if it has none. Other keys of the session are refused from then on. epoch is
// what is known of the session's, 0 if nothing: if it has another one the engine
// says which, and that is taken over, whoever of the same name has it. If others
// come between even so, it is an ErrSession: their turn first.
func (p *Places) attach(ctx context.Context, n Name, ttl time.Duration, epoch uint64) (lockkeeper.Lease,
	lockkeeper.Status, error) {
	s := lockkeeper.Session{
		ID: n.Session(), TTL: ttl, Named: []uint64{theClaim}, Epoch: epoch, Outlive: true, Label: lockkeeper.Label{As: n.As},
	}
	lease, err := p.engine.Attach(ctx, s, nil)
	var told *lockkeeper.Error
	if errors.As(err, &told) && told.Err == lockkeeper.ErrSession && told.Epoch != 0 {
		s.Epoch = told.Epoch
		lease, err = p.engine.Attach(ctx, s, nil)
	}
	if err != nil {
		return lease, lockkeeper.Status{}, err
	}
	i := slices.IndexFunc(lease.Claims, func(st lockkeeper.Status) bool { return st.Ref.ID == theClaim })
	if i < 0 {
		return lease, lockkeeper.Status{}, nil
	}
	return lease, lease.Claims[i], nil
}

// leave ends the session of a key.
func (p *Places) leave(ctx context.Context, k lockkeeper.Key) error {
	return p.engine.End(ctx, k, lockkeeper.Ending{Kind: lockkeeper.Leave})
}

// settle completes the answer of a live claim: the place of one that waits, and
// the long lease of one that is held for longer than its session has.
func (p *Places) settle(ctx context.Context, n Name, terms Terms, lease lockkeeper.Lease, st lockkeeper.Status) (Answer,
	error) {
	if st.State == lockkeeper.Waiting {
		ticket := st.Ticket
		var err error
		if st, err = p.look(ctx, n); err != nil {
			return Answer{}, err
		}
		if st.Ticket != ticket {
			return Answer{}, errAgain
		}
	}
	if st.State == lockkeeper.Held && terms.For > lease.TTL {
		longer, now, err := p.attach(ctx, n, terms.For, lease.Key.Epoch)
		if err != nil {
			return Answer{}, err
		}
		if now.State != lockkeeper.Held || now.Ticket != st.Ticket {
			if now.State == 0 || now.State == lockkeeper.Waiting {
				_ = p.leave(ctx, longer.Key) // released just now, or even grabbed anew: no place has such a promise
			}
			return Answer{}, errAgain
		}
		lease, st = longer, now
	}
	return Answer{Status: st, TTL: lease.TTL}, nil
}

// look is how n's claim stands, with its place; the State is 0 if there is none.
func (p *Places) look(ctx context.Context, n Name) (lockkeeper.Status, error) {
	for st, err := range p.engine.List(ctx, lockkeeper.Query{Ref: n.Ref()}) {
		return st, err
	}
	return lockkeeper.Status{}, nil
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

// repeat does do until no other process of the same name has come between. Each
// try has a bound, so that an engine that is silent is noticed.
func (n Name) repeat(ctx context.Context, do func(context.Context) error) error {
	for try := range mostTries {
		bounded, cancel := context.WithTimeout(ctx, roundTrip)
		err := do(bounded)
		cancel()
		if err != errAgain && !errors.Is(err, lockkeeper.ErrSession) {
			return err
		}
		// They must not go in step, and all the less the slower the engine is: what
		// each needs is two exchanges in a row.
		if err := sleep(ctx, rand.N(min(longest, time.Millisecond<<min(try, 10)))); err != nil {
			return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: err}
		}
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable,
		Detail: fmt.Sprintf("other processes that call themselves %s came between %d times: ask again", n.As, mostTries)}
}

// sleep waits for d, or until ctx ends; then it returns why.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// answer returns the answer of do, as repeat does it, with the token of a hold. It compares the
// engine's epoch before and after do: only if both are equal does the answer belong to that epoch.
func (p *Places) answer(ctx context.Context, n Name, do func(context.Context) (Answer, error)) (a Answer, err error) {
	err = n.repeat(ctx, func(ctx context.Context) (err error) {
		epoch := p.engine.Guarantees().Epoch
		if a, err = do(ctx); p.engine.Guarantees().Epoch != epoch && !errors.Is(err, lockkeeper.ErrUnavailable) {
			return errAgain
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
