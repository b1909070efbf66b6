package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// DefaultPort is the port of servers whose address names none.
const DefaultPort = "7420"

// An Engine is a lockkeeper.Engine at a server. It is safe for concurrent use.
type Engine struct {
	endpoint   *endpoint
	guarantees lockkeeper.Guarantees
	parent     func(context.Context) string // of Trace; may be nil

	mu      sync.Mutex
	conn    *conn
	epoch   string            // of the engine at the other end, as the latest connection stated it
	former  *conn             // the connection before
	last    int               // the address that answered last, or is to be tried first
	drained map[int]time.Time // addresses whose servers take no new claims, and when they said so
	attempt *attempt          // to connect; nil if there is none
	closed  bool

	life          context.Context // ends when the engine is closed: then it dials no more
	end           context.CancelFunc
	subscriptions subscriptions
}

// Check finds what is wrong with a URL, as Open takes it, and with the files and
// variables of the environment that it relies on. It opens no connection.
func Check(url string) error {
	p, err := parse(url)
	if err != nil {
		return err
	}
	return p.check()
}

// Open connects to the server at the first of the addresses that answers: "lk://"
// or, with TLS, "lks://", and such as "host", "host:7420", "[::1]:7420" or several,
// separated by commas, of servers that share one engine; one that drains is left for
// another. Then may follow, after "?" and with "&" between, files: token=FILE has the token to show, in place of
// $LOCKKEEPER_TOKEN or the file $LOCKKEEPER_TOKEN_FILE; with TLS ca=FILE has the authorities
// to trust, in place of the system's, and cert=FILE and key=FILE are the certificate
// to show. Files are read again at each connection, so they may be replaced at any time.
//
// ctx bounds it. ErrInvalid if the URL can't be right, ErrDenied if the server refuses
// the client, ErrUnavailable if no server answers.
func Open(ctx context.Context, url string) (*Engine, error) {
	p, err := parse(url)
	if err == nil {
		err = p.check()
	}
	if err != nil {
		return nil, err
	}
	e := &Engine{endpoint: p, drained: make(map[int]time.Time)}
	e.life, e.end = context.WithCancel(context.Background())
	c, err := e.connection(ctx)
	if err != nil {
		e.Close() // a connection may come yet
		return nil, err
	}
	e.guarantees = c.guarantees
	e.guarantees.Name = "lk (" + c.guarantees.Name + ")"
	e.guarantees.Reach = lockkeeper.OnNetwork
	return e, nil
}

// Guarantees implements lockkeeper.Engine: those of the server's engine, over a network.
func (e *Engine) Guarantees() lockkeeper.Guarantees {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.guarantees
	g.Epoch = e.epoch
	return g
}

// Attach implements lockkeeper.Engine.
func (e *Engine) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	if err := s.Check(false); err != nil {
		return lockkeeper.Lease{}, err
	}
	answered := e.subscriptions.attach(s.ID, notify)
	lease, err := e.lease(ctx, &wire.Request{Attach: wire.NewSession(&s)}, lockkeeper.Key{})
	if err != nil {
		answered(nil)
		return lockkeeper.Lease{}, err
	}
	answered(&lease)
	return lease, nil
}

// Renew implements lockkeeper.Engine.
func (e *Engine) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	lease, err := e.lease(ctx, &wire.Request{Renew: true}, k)
	if err == nil {
		e.subscriptions.renewed(&lease)
	}
	return lease, err
}

// lease does a call that is answered by a lease, perhaps in pieces.
func (e *Engine) lease(ctx context.Context, m *wire.Request, k lockkeeper.Key) (lockkeeper.Lease, error) {
	answer, err := e.call(ctx, m, k, nil)
	if err != nil {
		return lockkeeper.Lease{}, err
	}
	if answer.lease.Key.Session == "" {
		return lockkeeper.Lease{}, unavailable(errAnswer)
	}
	return answer.lease, nil
}

// Claim implements lockkeeper.Engine.
func (e *Engine) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if err := e.guarantees.Refuse(&w); err != nil {
		return lockkeeper.Status{}, err
	}
	if err := w.Check(); err != nil {
		return lockkeeper.Status{}, err
	}
	answer, err := e.call(ctx, &wire.Request{Claim: wire.NewWant(&w)}, k, &w)
	if err != nil {
		return lockkeeper.Status{}, err
	}
	if answer.status.State == 0 {
		return lockkeeper.Status{}, unavailable(errAnswer)
	}
	return answer.status, nil
}

// End implements lockkeeper.Engine.
func (e *Engine) End(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending) error {
	if err := ending.Check(); err != nil {
		return err
	}
	_, err := e.call(ctx, &wire.Request{End: wire.NewEnding(&ending)}, k, nil)
	if ending.Kind == lockkeeper.Leave && err == nil {
		e.subscriptions.left(k)
	}
	return err
}

// Close implements lockkeeper.Engine: it ends the connection. Sessions live on at
// the server until they are left or their TTL ends.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	c := e.conn
	e.mu.Unlock()
	e.end()
	e.subscriptions.clear()
	if c != nil {
		c.Fail(errClosed)
		<-c.over
	}
	return nil
}

var (
	errClosed = errors.New("the engine is closed")
	errAnswer = errors.New("the server's answer has no answer in it: use client and server of one version")
)

func unavailable(cause error) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: cause}
}

// lost takes note that a connection is gone. Whoever has a session is told that
// hints may have been missed, so that it renews, and by that comes back.
func (e *Engine) lost(c *conn, cause error) {
	e.mu.Lock()
	if e.conn == c {
		e.conn, e.former = nil, c
		if errors.Is(cause, errSilent) { // to try it again first would take the time that leases have left
			e.last = (e.last + 1) % len(e.endpoint.addresses)
		}
	}
	e.mu.Unlock()
	e.missed()
}

// tell passes hints on; none at all says that some were missed.
func (e *Engine) tell(hints []lockkeeper.Status) {
	for len(hints) > 0 {
		session, n := hints[0].Ref.Session, 1
		for n < len(hints) && hints[n].Ref.Session == session {
			n++
		}
		for _, notify := range e.subscriptions.of(session) {
			notify(hints[:n])
		}
		hints = hints[n:]
	}
}

// missed tells every session that hints may have been missed.
func (e *Engine) missed() {
	for _, notify := range e.subscriptions.all() {
		notify(nil)
	}
}

// where names the addresses for people.
func (e *Engine) where() string {
	if len(e.endpoint.addresses) == 1 {
		return e.endpoint.addresses[0]
	}
	return fmt.Sprintf("any of %d servers", len(e.endpoint.addresses))
}
