package grab

import (
	"context"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// Look tells what the name has, and refreshes nothing. The State is 0 if it has
// nothing, and Ended, with the reason, as long as the engine remembers it.
func (p *Places) Look(ctx context.Context, n Name) (Answer, error) {
	if err := n.Check(); err != nil {
		return Answer{}, n.wrap("look", err)
	}
	a, err := p.answer(ctx, n, func(ctx context.Context) (Answer, error) {
		st, err := p.session(n).Look(ctx)
		return Answer{Status: st}, err
	})
	return a, n.wrap("look", err)
}

// Renew refreshes what the name has, and never queues anew: if it has nothing the
// error is an ErrLost, with the reason if that is known.
func (p *Places) Renew(ctx context.Context, n Name, terms Terms) (Answer, error) {
	if err := together(n.Check(), terms.check()); err != nil {
		return Answer{}, n.wrap("renew", err)
	}
	a, err := p.answer(ctx, n, func(ctx context.Context) (Answer, error) { return p.renew(ctx, n, terms) })
	return a, n.wrap("renew", err)
}

// renew is one try of Renew.
func (p *Places) renew(ctx context.Context, n Name, terms Terms) (Answer, error) {
	o, err := p.session(n).Renew(ctx, terms.ttl())
	if err == nil && solo.Gone(o.Status) {
		err = n.nothing(o.Status)
	}
	if err != nil {
		return Answer{}, err
	}
	return p.settle(ctx, n, terms, o)
}

// nothing is the error for who has nothing to renew.
func (n Name) nothing(st lockkeeper.Status) error {
	e := &lockkeeper.Error{Path: n.what(), Err: lockkeeper.ErrLost, Reason: st.Reason, Detail: st.Text}
	if st.State == 0 {
		e.Detail = n.As +
			" has neither a hold nor a place in line here: it was never grabbed, was released, or was not repeated in time"
	}
	return e
}

// Release gives back what the name has, hold or place, and returns how many that
// were: 0 if it had nothing, which is no error. Another name's it never touches.
func (p *Places) Release(ctx context.Context, n Name) (int, error) {
	if err := n.Check(); err != nil {
		return 0, n.wrap("release", err)
	}
	return p.release(ctx, n, 0)
}

// release is Release, of the claim with that ticket alone unless it is 0.
func (p *Places) release(ctx context.Context, n Name, ticket uint64) (int, error) {
	released, s := 0, p.session(n)
	err := s.Do(ctx, func(ctx context.Context) error {
		st, err := s.Look(ctx)
		if err != nil || st.State == 0 || ticket != 0 && st.Ticket != ticket {
			return err
		}
		if err = s.Release(ctx, st, 0); err == nil && !solo.Gone(st) {
			released = 1
		}
		return err
	})
	return released, n.wrap("release", err)
}
