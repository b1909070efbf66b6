package remote

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// dialTime bounds the attempt at one address: the caller's context may have no bound.
const dialTime = 5 * time.Second

// An attempt connects to a server. Any number of callers wait for it.
type attempt struct {
	done chan struct{}
	conn *conn
	err  error
}

// connection returns the open connection, or a new one. Concurrent callers share an attempt, which
// goes on when one of them gives up.
func (e *Engine) connection(ctx context.Context) (*conn, error) {
	c, _, err := e.connectionAfterWait(ctx)
	return c, err
}

// connectionAfterWait is connection. It also reports whether the caller had to wait for the connection.
func (e *Engine) connectionAfterWait(ctx context.Context) (c *conn, waited bool, err error) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, false, unavailable(errClosed)
	}
	if c := e.conn; c != nil {
		e.mu.Unlock()
		return c, false, nil
	}
	a := e.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		e.attempt = a
		go e.connect(a, e.former)
	}
	e.mu.Unlock()
	select {
	case <-a.done:
		return a.conn, true, a.err
	case <-ctx.Done():
		return nil, true, unavailable(fmt.Errorf("connecting to %s: %w", e.where(), ctx.Err()))
	}
}

// connect makes the next connection. It waits until all frames of the former one are processed: the
// next server may be a later run, whose numbers start again.
func (e *Engine) connect(a *attempt, former *conn) {
	pause := firstPause
	if former != nil {
		<-former.over
		pause = nextPause
	}
	e.mu.Lock()
	order := e.nodes.order(time.Now())
	e.mu.Unlock()
	c, err := e.race(order, pause)
	e.mu.Lock()
	e.attempt = nil
	switch {
	case e.closed:
		if c != nil {
			c.net.Close()
		}
		c, err = nil, unavailable(errClosed)
	case c != nil:
		e.conn, e.epoch = c, c.guarantees.Epoch
		e.nodes.connected(c.address, &c.nodes)
		if c.draining.Load() != nil { // the others have been tried: it stays here
			e.nodes.avoided[c.address] = time.Now()
		}
	}
	e.mu.Unlock()
	if a.conn, a.err = c, err; c != nil {
		go c.receive()
		go c.write()
	}
	close(a.done)
}

// While a server does not answer, the client tries the next one beside it, after a pause: that of the
// first connection, which nobody's lease waits for, or that of a later one. RFC 8305 does the same with
// the addresses of one host.
const (
	firstPause = time.Second
	nextPause  = farAway
)

// race dials the addresses in their order: each when all before have failed, or a pause after the last
// dial. The pause doubles, because servers that are slow under load should not get more to do. A server
// that drains, or can perform no calls, names others, which race dials then. It returns the first
// connection to a server that does neither; if there is none, one to a server that drains, and else one
// to a server that may be able to perform calls later.
func (e *Engine) race(order []string, pause time.Duration) (*conn, error) {
	ctx, cancel := context.WithCancel(e.life)
	defer cancel()
	results := make(chan dialled)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	var spare *conn
	var errs []error
	next, open := 0, 0
	for due := true; ; {
		if (due || open == 0) && next < len(order) {
			address := order[next]
			next, open = next+1, open+1
			timer.Reset(pause)
			pause *= 2
			go func() {
				c, err := e.dial(ctx, address)
				results <- dialled{c, err}
			}()
		} else if open == 0 || due && spare != nil {
			break
		}
		due = false
		select {
		case <-timer.C:
			due = true
		case r := <-results:
			open--
			switch {
			case r.err != nil:
				errs = append(errs, r.err)
			case r.conn.shouldBeLeft():
				if !e.nodes.only {
					order = withNodes(order, &r.conn.nodes)
				}
				spare = better(spare, r.conn)
			default:
				go hangUp(results, open, spare)
				return r.conn, nil
			}
		}
	}
	go hangUp(results, open, nil)
	if spare != nil {
		return spare, nil
	}
	return nil, e.unreached(errs)
}

// shouldBeLeft reports whether another server would serve the client better: this one drains, or can
// perform no calls.
func (c *conn) shouldBeLeft() bool { return c.suspension.Load() != nil || c.draining.Load() != nil }

// better returns the one of two connections whose server is of more use, and closes the other one. A
// server that drains performs all calls but new claims. spare may be nil.
func better(spare, c *conn) *conn {
	if spare == nil {
		return c
	}
	if spare.suspension.Load() != nil && c.suspension.Load() == nil {
		spare, c = c, spare
	}
	c.net.Close()
	return spare
}

// withNodes returns order with the nodes that are not in it yet.
func withNodes(order []string, stated *lockkeeper.ClusterNodes) []string {
	for _, address := range stated.Addresses {
		if address != stated.Self && !slices.Contains(order, address) {
			order = append(order, address)
		}
	}
	return order
}

// dialled is the result of a dial.
type dialled struct {
	conn *conn
	err  error
}

// hangUp closes the connections that are not needed: the spare one, which may be nil, and those of the
// dials that are still under way.
func hangUp(results <-chan dialled, open int, spare *conn) {
	if spare != nil {
		spare.net.Close()
	}
	for range open {
		if r := <-results; r.conn != nil {
			r.conn.net.Close()
		}
	}
}

// unreached returns the error of an attempt in which no address worked. For the first connection a refusal says
// more than an address where no server answers. Later a refusal ends what the client has only if all addresses
// refuse, or if those that answer have refused for longer than a restart takes: one server may refuse for a while,
// such as one with an older file of tokens, while the others restart.
func (e *Engine) unreached(errs []error) error {
	if e.life.Err() != nil {
		return unavailable(errClosed)
	}
	var refusals []error
	refused := true // all servers that answered refuse the client: none asks it to try again
	for i, err := range errs {
		if refusal, ok := err.(*lockkeeper.Error); ok {
			refusals = append(refusals, refusal)
			refused = refused && refusal.Err != lockkeeper.ErrUnavailable
			errs[i] = errors.New(refusal.Error()) // the text alone: among others it is no refusal
		}
	}
	e.mu.Lock()
	first := e.nodes.at == ""
	lasts := e.nodes.refusalLasts(len(refusals) > 0 && refused, time.Now())
	e.mu.Unlock()
	if len(refusals) > 0 && (first || lasts || len(refusals) == len(errs)) {
		return refusals[0]
	}
	return unavailable(errors.Join(errs...))
}

var errDrains = errors.New("it drains, and there is another server")

// leaves reports whether the client moves to another server because that of c drains, or can perform no
// calls. The servers keep the same claims, so sessions live on.
func (e *Engine) leaves(c *conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.conn == c && e.nodes.leave(time.Now())
}

// stated records what the server of c states about its cluster. An error ends the connection.
func (e *Engine) stated(c *conn, stated *lockkeeper.ClusterNodes) error {
	e.mu.Lock()
	if err := e.nodes.check(c.address, stated); err != nil || e.conn != c {
		e.mu.Unlock()
		return err
	}
	e.nodes.learn(stated)
	e.mu.Unlock()
	return c.suspended(stated)
}

// dial opens a connection to one server, up to its welcome.
func (e *Engine) dial(ctx context.Context, address string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	token, err := e.endpoint.credential()
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable:   true,
		Idle:     10 * time.Second,
		Interval: 5 * time.Second,
		Count:    3,
	}}
	nc, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w (is there a server at %s%s? \"lk serve\" starts one)", err, e.endpoint.scheme(), address)
	}
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	c, err := e.shakeHands(ctx, nc, address, token)
	if err == nil {
		e.mu.Lock()
		err = e.nodes.check(address, &c.nodes)
		e.mu.Unlock()
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

// shakeHands verifies the server and exchanges the first frames.
func (e *Engine) shakeHands(ctx context.Context, nc net.Conn, address, token string) (*conn, error) {
	if e.endpoint.secure {
		config, err := e.endpoint.trust(address)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(nc, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, e.endpoint.explain(err, address)
		}
		nc = secure
	} else if at, ok := nc.RemoteAddr().(*net.TCPAddr); token != "" && (!ok || !at.IP.IsLoopback()) {
		return nil, e.endpoint.inTheClear(address)
	}
	c, err := e.handshake(nc, address, token)
	if err == nil {
		return c, nil
	}
	err = e.endpoint.explain(err, address)
	if answer, ok := err.(*lockkeeper.Error); ok {
		return nil, e.endpoint.advise(answer, address, token)
	}
	if !e.endpoint.secure && !errors.Is(err, wire.ErrFrame) && speaksHTTPS(ctx, address) {
		err = errHTTP
	}
	return nil, fmt.Errorf("%s does not answer as a Lockkeeper server: %w", address, err)
}

// speaksHTTPS reports whether a server of HTTP over TLS is at an address. Such a server closes other
// connections without an answer. speaksHTTPS sends no data after the handshake.
func speaksHTTPS(ctx context.Context, address string) bool {
	// The handshake only negotiates the protocol, so the certificate does not matter.
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}
	nc, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer nc.Close()
	return nc.(*tls.Conn).ConnectionState().NegotiatedProtocol != ""
}

// handshake sends the first frame and reads the welcome.
func (e *Engine) handshake(nc net.Conn, address, token string) (*conn, error) {
	if err := nc.SetDeadline(time.Now().Add(dialTime)); err != nil {
		return nil, err
	}
	opening := &wire.Hello{Protocol: wire.Protocol, Client: "lockkeeper", Token: token}
	if err := wire.WriteFrame(nc, &wire.ClientFrame{Hello: opening}); err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(nc, 16<<10)
	if first, _ := in.Peek(len(tlsAlert)); bytes.Equal(first, tlsAlert) {
		return nil, errors.New("it speaks TLS: write lks:// in place of lk://")
	} else if bytes.HasPrefix(httpAnswer, first) && len(first) > 0 {
		if whole, _ := in.Peek(len(httpAnswer)); bytes.Equal(whole, httpAnswer) {
			return nil, errHTTP
		}
	}
	var f wire.ServerFrame
	message, err := readMessage(in, nil)
	if err == nil {
		err = wire.ReadFrame(message, &f)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case f.GetRefused() != nil:
		return nil, f.GetRefused().Read()
	case f.GetWelcome().GetProtocol() != wire.Protocol:
		return nil, fmt.Errorf("%w: it speaks protocol %d, and this client protocol %d", wire.ErrFrame,
			f.GetWelcome().GetProtocol(), wire.Protocol)
	}
	stated, err := f.GetWelcome().GetCluster().Read()
	if err != nil {
		return nil, err
	}
	c := newConn(e, nc, in, f.GetWelcome().GetGuarantees().Read())
	c.address, c.nodes = address, stated
	c.suspend(&stated)
	if why := f.GetDraining(); why != "" {
		c.draining.Store(&why)
	}
	return c, nc.SetDeadline(time.Time{})
}

// tlsAlert are the first bytes of a TLS alert, the answer of a TLS server to a client without TLS. No
// frame begins with them.
var tlsAlert = []byte{21, 3}

// httpAnswer are the first bytes of the answer of an HTTP server. No frame begins with them: its
// message would begin with the end of a group.
var httpAnswer = []byte("HTTP/")

// errHTTP reports that the URL names the HTTP port.
var errHTTP = errors.New("that port speaks HTTP: name the other port of the server, mostly " + DefaultPort)

// readMessage reads the message of one frame, into room as far as that is large enough.
func readMessage(in *bufio.Reader, room []byte) ([]byte, error) {
	length, err := wire.ReadLength(in, wire.MaxFrame)
	if err != nil {
		return nil, err
	}
	return wire.ReadMessage(in, length, room, nil)
}
