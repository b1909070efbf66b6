package grab

import (
	"context"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// Look returns the claim of the name, and renews nothing. The State is 0 if the name has no claim,
// and Ended, with the reason, as long as the engine remembers an ended one.
func (p *Reservations) Look(ctx context.Context, n Name) (Answer, error) {
	if err := n.Check(); err != nil {
		return Answer{}, n.wrap("look", err)
	}
	a, err := p.answer(ctx, n, func(ctx context.Context) (Answer, error) {
		st, err := p.session(n).Look(ctx)
		return Answer{Status: st}, err
	})
	return a, n.wrap("look", err)
}

// Renew renews the claim of the name, and never makes one: if the name has no claim, the error is
// an ErrLost, with the reason if it is known.
func (p *Reservations) Renew(ctx context.Context, n Name, terms Terms) (Answer, error) {
	if err := joinInvalid(n.Check(), terms.check()); err != nil {
		return Answer{}, n.wrap("renew", err)
	}
	a, err := p.answer(ctx, n, func(ctx context.Context) (Answer, error) { return p.renew(ctx, n, terms) })
	return a, n.wrap("renew", err)
}

// renew is one try of Renew.
func (p *Reservations) renew(ctx context.Context, n Name, terms Terms) (Answer, error) {
	o, err := p.session(n).Renew(ctx, terms.ttl())
	if err == nil && solo.Gone(o.Status) {
		err = n.nothingHeld(o.Status)
	}
	if err != nil {
		return Answer{}, err
	}
	return p.answerLive(ctx, n, terms, o)
}

// nothingHeld returns the error if the name has no claim to renew.
func (n Name) nothingHeld(st lockkeeper.Status) error {
	e := &lockkeeper.Error{Path: n.firstPath(), Err: lockkeeper.ErrLost, Reason: st.Reason, Detail: st.Text}
	if st.State == 0 {
		e.Detail = n.As +
			" neither holds nor waits here: it was never grabbed, was released, or was not repeated in time"
	}
	return e
}

// Release ends the claim of the name, and returns 1. It returns 0 if the name has no live claim;
// that is no error. It never touches the claim of another name.
func (p *Reservations) Release(ctx context.Context, n Name) (int, error) {
	if err := n.Check(); err != nil {
		return 0, n.wrap("release", err)
	}
	return p.release(ctx, n, 0, anyState)
}

// releases says which claims release ends.
type releases uint8

const (
	anyState    releases = iota
	onlyWaiting          // not one that is held by now: another process of the name may know that
)

// release is Release, but only of the claim with that ticket; 0: of any claim.
func (p *Reservations) release(ctx context.Context, n Name, ticket uint64, which releases) (int, error) {
	released, s := 0, p.session(n)
	err := s.Do(ctx, func(ctx context.Context) error {
		st, err := s.Look(ctx)
		if err != nil || st.State == 0 || ticket != 0 && st.Ticket != ticket ||
			which == onlyWaiting && st.State == lockkeeper.Held {
			return err
		}
		if err = s.Release(ctx, st, 0); err == nil && !solo.Gone(st) {
			released = 1
		}
		return err
	})
	return released, n.wrap("release", err)
}
