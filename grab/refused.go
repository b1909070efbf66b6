package grab

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// refused reports whether err is a refusal: it is certain that nothing was done.
func refused(err error) bool {
	return errors.Is(err, lockkeeper.ErrInvalid) || errors.Is(err, lockkeeper.ErrDenied) ||
		errors.Is(err, lockkeeper.ErrUnsupported)
}

// undo ends the session in which a key has claimed, or would have, if err is a
// refusal: who is refused has nothing. Whatever is there under this key was brought
// by it; if another process of the name came since, the key is an old one and harms
// nobody. What is not undone ends with its TTL.
func (p *Places) undo(ctx context.Context, k lockkeeper.Key, err error) {
	if !refused(err) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), givingBack)
	defer cancel()
	_ = p.leave(ctx, k)
}

// allowed refuses a new place if the hold that it is for could never be had: nobody
// should wait for that. A place itself has the short TTL, so a session of no one
// asks for the long one, and goes at once. What is held at once settle asks itself.
func (p *Places) allowed(ctx context.Context, n Name, terms Terms, lease lockkeeper.Lease, st lockkeeper.Status) error {
	if st.State != lockkeeper.Waiting || terms.For <= lease.TTL {
		return nil
	}
	err := p.ask(ctx, n, terms.For)
	if !refused(err) || refused(p.ask(ctx, n, terms.ttl())) {
		return nil // if any is refused, it is not for its length: there are too many sessions, say
	}
	return err
}

// ask tells whether a session of so long would be let in.
func (p *Places) ask(ctx context.Context, n Name, ttl time.Duration) error {
	lease, err := p.engine.Attach(ctx, asking(n.As, ttl), nil)
	if err == nil {
		_ = p.leave(context.WithoutCancel(ctx), lease.Key) // or it ends with its TTL
	}
	return err
}

// asking is a session that only asks, and is nobody's place.
func asking(as string, ttl time.Duration) lockkeeper.Session {
	return lockkeeper.Session{
		ID:      sessions + "asks-" + strings.ToLower(rand.Text()),
		TTL:     ttl,
		Outlive: true,
		Label:   lockkeeper.Label{As: as},
	}
}
