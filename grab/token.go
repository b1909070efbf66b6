package grab

import (
	"context"
	"strconv"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// maxEpoch bounds the epoch of a token, in bytes.
const maxEpoch = 64

// A Token identifies one grant uniquely: by its fence, and by the engine's epoch if fences start
// again with the engine. The zero Token identifies none.
type Token struct {
	Fence uint64
	Epoch string // lockkeeper.Guarantees.Epoch
}

// String returns "17", or "17-k3x9q2ab" if fences start again with the engine.
func (t Token) String() string {
	fence := strconv.FormatUint(t.Fence, 10)
	if t.Epoch == "" {
		return fence
	}
	return fence + "-" + t.Epoch
}

// ParseToken parses the text of a Token that String returned.
func ParseToken(text string) (Token, error) {
	number, epoch, some := strings.Cut(text, "-")
	fence, err := strconv.ParseUint(number, 10, 64)
	t := Token{Fence: fence, Epoch: epoch}
	if err != nil || fence == 0 || len(epoch) > maxEpoch || some && epoch == "" || t.String() != text {
		return Token{}, lockkeeper.Invalid("fence %.80q is not valid: give the fence of the ok, such as 17 or 17-k3x9q2ab",
			text)
	}
	return t, nil
}

// Confirm refreshes the hold that t identifies, and creates no claim. If the name has no claim, a
// waiting claim, or another hold, the hold of t is over: Confirm and every repeat return an
// ErrLost, with the reason if it is known. r must ask for what is held, as in a repeat of
// [Reservations.Grab].
func (p *Reservations) Confirm(ctx context.Context, r Request, t Token) (Answer, error) {
	n := r.Name()
	if err := r.Check(); err != nil {
		return Answer{}, n.wrap("grab", err)
	}
	want := r.want()
	a, err := p.answer(ctx, n, func(ctx context.Context) (Answer, error) { return p.confirm(ctx, n, want, r.Terms, t) })
	return a, n.wrap("grab", err)
}

// confirm is one try of Confirm.
func (p *Reservations) confirm(ctx context.Context, n Name, want lockkeeper.Want, terms Terms, t Token) (Answer,
	error) {
	s := p.session(n)
	st, err := s.Look(ctx) // a renewal would extend another hold of the name, and one that r does not ask for
	if err == nil {
		err = p.isOver(n, t, st)
	}
	if err == nil {
		err = repeats(st, want)
	}
	if err != nil {
		return Answer{}, err
	}
	o, err := s.Renew(ctx, terms.ttl())
	if err == nil {
		err = p.isOver(n, t, o.Status)
	}
	if err == nil {
		o.Status, err = p.adapt(ctx, o.Key, o.Status, want)
	}
	if err != nil {
		return Answer{}, err
	}
	return p.answerLive(ctx, n, terms, o)
}

// isOver compares the present status of the name's claim with t. It returns nil if st is the hold
// of t, and otherwise the ErrLost of that hold.
func (p *Reservations) isOver(n Name, t Token, st lockkeeper.Status) error {
	epoch := p.engine.Guarantees().Epoch
	if t.Epoch == "" && epoch != "" {
		return lockkeeper.Invalid("fence %s is incomplete: the fences of this engine start again with it, "+
			"so give all of the fence of the ok, as in %s-%s", t, t, epoch)
	}
	e := &lockkeeper.Error{Path: n.firstPath(), Err: lockkeeper.ErrLost}
	switch {
	case t.Epoch != epoch:
		e.Reason, e.Detail = lockkeeper.EngineRestarted, "fence "+t.String()+" is from before the restart"
	case st.Fence == t.Fence && st.State == lockkeeper.Held:
		return nil
	case st.Fence == t.Fence && st.State == lockkeeper.Ended:
		e.Reason, e.Detail = st.Reason, st.Text
	case st.State == lockkeeper.Held:
		now := Token{Fence: st.Fence, Epoch: epoch}
		e.Detail = n.As + " now has another hold, with fence " + now.String() + ", and no longer the one with fence " +
			t.String()
	case st.State == lockkeeper.Waiting:
		e.Detail = n.As + " now waits, and no longer has the hold with fence " + t.String()
	default:
		e.Detail = n.As + " no longer has the hold with fence " + t.String() +
			": it was released, or was not repeated in time"
	}
	return e
}
