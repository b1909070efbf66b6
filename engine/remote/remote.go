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

// An Engine is the engine that a server exports. It is safe for concurrent use.
type Engine struct {
	endpoint   *endpoint
	guarantees lockkeeper.Guarantees
	parent     func(context.Context) string // of Trace; may be nil

	mu      sync.Mutex
	conn    *conn
	epoch   string // of the server's engine, as the latest connection stated it
	former  *conn  // the connection that failed last
	nodes   nodes
	attempt *attempt // the attempt to connect that is under way; nil if there is none
	closed  bool

	life          context.Context // ends when the engine is closed: then it dials no more
	end           context.CancelFunc
	subscriptions subscriptions
	spare         sync.Pool // calls that are used again
}

// Check returns an error if Open would refuse the URL, or if a file or an environment variable that
// it relies on is invalid. It opens no connection.
func Check(url string) error {
	p, err := parse(url)
	if err != nil {
		return err
	}
	return p.check()
}

// Open connects to the first server that answers. The URL is "lk://", or "lks://" for TLS, and one
// or more addresses, separated by commas: "host", "host:7420" or "[::1]:7420". Several addresses
// name servers that share one engine; the client leaves a server that drains for another one. After
// "?", the URL may name files, separated by "&":
//
//	token=FILE  the token, in place of $LOCKKEEPER_TOKEN or the file $LOCKKEEPER_TOKEN_FILE
//	ca=FILE     TLS: the authorities to trust, in place of the system's
//	cert=FILE   TLS: the client's certificate
//	key=FILE    TLS: its key
//
// The engine reads the files again for each connection, so they may be replaced at any time.
//
// ctx bounds Open. The error is ErrInvalid if the URL is invalid, ErrDenied if the server refuses
// the client, and ErrUnavailable if no server answers.
func Open(ctx context.Context, url string) (*Engine, error) {
	p, err := parse(url)
	if err == nil {
		err = p.check()
	}
	if err != nil {
		return nil, err
	}
	e := &Engine{endpoint: p, nodes: nodes{given: p.addresses, avoided: make(map[string]time.Time)}}
	if e.nodes.only = ctx.Value(oneServer{}) != nil; e.nodes.only && len(p.addresses) > 1 {
		return nil, lockkeeper.Invalid("this is about one server, and the URL names %d: name the one", len(p.addresses))
	}
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

// Guarantees implements lockkeeper.Engine. They are those of the server's engine, over a network.
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
	lease, err := e.lease(ctx, &request{Call: &wire.Call{Method: wire.MethodAttach}, session: &s})
	if err != nil {
		answered(nil)
		return lockkeeper.Lease{}, err
	}
	answered(&lease)
	return lease, nil
}

// Renew implements lockkeeper.Engine.
func (e *Engine) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	lease, err := e.lease(ctx, &request{Call: &wire.Call{Method: wire.MethodRenew, Key: k}})
	if err == nil {
		e.subscriptions.renewed(&lease)
	}
	return lease, err
}

// lease makes a call whose answer is a lease.
func (e *Engine) lease(ctx context.Context, m *request) (lockkeeper.Lease, error) {
	cl, err := e.call(ctx, m)
	if err != nil {
		return lockkeeper.Lease{}, err
	}
	defer cl.free()
	if cl.lease.Key.Session == "" {
		return lockkeeper.Lease{}, unavailable(errAnswer)
	}
	return cl.lease, nil
}

// Claim implements lockkeeper.Engine.
func (e *Engine) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if err := e.guarantees.Refuse(&w); err != nil {
		return lockkeeper.Status{}, err
	}
	if err := w.Check(); err != nil {
		return lockkeeper.Status{}, err
	}
	cl, err := e.call(ctx, &request{Call: &wire.Call{Method: wire.MethodClaim, Key: k}, want: &w})
	if err != nil {
		return lockkeeper.Status{}, err
	}
	defer cl.free()
	if cl.status.State == 0 {
		return lockkeeper.Status{}, unavailable(errAnswer)
	}
	return cl.status, nil
}

// End implements lockkeeper.Engine.
func (e *Engine) End(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending) error {
	if err := ending.Check(); err != nil {
		return err
	}
	cl, err := e.call(ctx, &request{Call: &wire.Call{Method: wire.MethodEnd, Key: k}, ending: &ending})
	if err == nil {
		cl.free()
	}
	if ending.Kind == lockkeeper.Leave && err == nil {
		e.subscriptions.left(k)
	}
	return err
}

// Close implements lockkeeper.Engine. It ends the connection. Sessions live at the server until
// their TTL ends.
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

// lost removes a connection that has failed, and notifies all sessions that hints may be missing:
// their renewals then open the next connection.
func (e *Engine) lost(c *conn, cause error) {
	e.mu.Lock()
	if e.conn == c {
		e.conn, e.former = nil, c
		if errors.Is(cause, errSilent) { // a second try there would use up the leases' remaining time
			e.nodes.last = true
		}
	}
	e.mu.Unlock()
	e.missed()
}

// deliverHints notifies each session of its hints. Consecutive hints of one session go in one call.
func (e *Engine) deliverHints(hints []lockkeeper.Status) {
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

// missed notifies every session that hints may be missing.
func (e *Engine) missed() {
	for _, notify := range e.subscriptions.all() {
		notify(nil)
	}
}

// where names the servers in messages. The lock of the engine is not held.
func (e *Engine) where() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.nodes.all()
	if len(all) == 1 {
		return all[0]
	}
	return fmt.Sprintf("any of %d servers", len(all))
}
