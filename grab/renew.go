package grab

import (
	"context"
	"errors"

	"github.com/lockkeeper/lockkeeper"
)

// Look tells what the name has, and refreshes nothing. The State is 0 if it has
// nothing, and Ended, with the reason, as long as the engine remembers it.
func (p *Places) Look(ctx context.Context, n Name) (Answer, error) {
	if err := n.Check(); err != nil {
		return Answer{}, n.wrap("look", err)
	}
	a, err := p.answer(ctx, n, func(ctx context.Context) (Answer, error) {
		st, err := p.look(ctx, n)
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
	// To look first makes no session for a name that has none.
	st, err := p.look(ctx, n)
	if err != nil {
		return Answer{}, err
	}
	if gone(st) {
		return Answer{}, n.nothing(st)
	}
	lease, st, err := p.resume(ctx, n, terms)
	if err != nil {
		return Answer{}, err
	}
	if gone(st) {
		return Answer{}, n.nothing(st)
	}
	return p.settle(ctx, n, terms, lease, st)
}

// resume attaches the session of a claim that existed a moment ago. If the claim has ended
// since, it leaves no session.
func (p *Places) resume(ctx context.Context, n Name, terms Terms) (lockkeeper.Lease, lockkeeper.Status, error) {
	lease, st, err := p.attach(ctx, n, terms.ttl(), 0)
	if err == nil && st.State == 0 {
		// Another process may have begun to grab again: then the session belongs to that
		// process, and this key is not valid.
		if err = p.leave(ctx, lease.Key); errors.Is(err, lockkeeper.ErrSession) {
			err = nil
		}
	}
	return lease, st, err
}

// gone reports whether nothing is left of a claim.
func gone(st lockkeeper.Status) bool { return st.State == 0 || st.State == lockkeeper.Ended }

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
	released := 0
	err := n.repeat(ctx, func(ctx context.Context) error {
		st, err := p.look(ctx, n)
		if err != nil || st.State == 0 || ticket != 0 && st.Ticket != ticket {
			return err
		}
		// Should it die before it leaves, the rest of the TTL goes on as before.
		lease, st, err := p.attach(ctx, n, lockkeeper.MinTTL, 0)
		if err != nil {
			return err
		}
		if st.State != 0 && ticket != 0 && st.Ticket != ticket {
			return nil // grabbed anew just now
		}
		if err := p.leave(ctx, lease.Key); err != nil {
			return err
		}
		if !gone(st) {
			released = 1
		}
		return nil
	})
	return released, n.wrap("release", err)
}
