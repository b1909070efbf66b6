package grab

import (
	"context"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// undo ends the session under whose key a claim was sent, if err is a refusal, because a refused
// request must change nothing. If another process of the name has attached since, the key is
// invalid and nothing happens.
func undo(ctx context.Context, s *solo.Session, k lockkeeper.Key, err error) {
	if solo.Refused(err) {
		_ = s.Discard(ctx, k)
	}
}

// allowed refuses a new waiting claim if the engine would refuse the TTL of its hold, Terms.For.
// The waiting claim has the short TTL, so a transient session asks for the long one. For a claim
// that is held at once, answerLive asks.
func (p *Reservations) allowed(ctx context.Context, n Name, terms Terms, o solo.Observation) error {
	if o.State != lockkeeper.Waiting || terms.For <= o.TTL {
		return nil
	}
	err := p.ask(ctx, n, terms.For)
	if !solo.Refused(err) || solo.Refused(p.ask(ctx, n, terms.ttl())) {
		return nil // the engine refuses the short TTL too, so the cause is another one, such as a quota
	}
	return err
}

// ask opens and leaves a session with that TTL, and returns the error.
func (p *Reservations) ask(ctx context.Context, n Name, ttl time.Duration) error {
	return solo.Transient(ctx, p.engine, asking, ttl, n.As, func(context.Context, lockkeeper.Key) error { return nil })
}

// asking is the prefix of transient sessions.
const asking = sessions + "asks-"
