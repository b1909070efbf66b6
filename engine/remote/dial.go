package remote

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// dialTime bounds the attempt at one address: the caller's context may have no bound, and another
// server may answer.
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
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, unavailable(errClosed)
	}
	if c := e.conn; c != nil {
		e.mu.Unlock()
		return c, nil
	}
	a := e.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		e.attempt = a
		go e.connect(a, e.last, e.former)
	}
	e.mu.Unlock()
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, unavailable(fmt.Errorf("connecting to %s: %w", e.where(), ctx.Err()))
	}
}

// connect tries the addresses in turn, from index first. It waits until all frames of the former
// connection are processed: the next server may be a later run, whose numbers start again.
func (e *Engine) connect(a *attempt, first int, former *conn) {
	if former != nil {
		<-former.over
	}
	var errs []error
	for i := range e.endpoint.addresses {
		at := (first + i) % len(e.endpoint.addresses)
		c, err := e.dial(e.endpoint.addresses[at])
		if err != nil && e.life.Err() != nil {
			errs = []error{errClosed}
			break
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		e.mu.Lock()
		e.attempt = nil
		if e.closed {
			e.mu.Unlock()
			c.net.Close()
			a.err = unavailable(errClosed)
			close(a.done)
			return
		}
		e.conn, e.last, e.epoch = c, at, c.guarantees.Epoch
		e.mu.Unlock()
		go c.receive()
		go c.write()
		a.conn = c
		close(a.done)
		return
	}
	e.mu.Lock()
	e.attempt = nil
	e.mu.Unlock()
	a.err = unavailable(errors.Join(errs...))
	for _, err := range errs {
		// A refusal says more than an address where no server answers.
		if refused, ok := err.(*lockkeeper.Error); ok {
			a.err = refused
		}
	}
	close(a.done)
}

// drainPause is how long a client avoids a server that drains.
const drainPause = 10 * time.Second

var errDrains = errors.New("it drains, and there is another server")

// leaves reports whether the client moves to another address because the server of c drains, and
// selects that address. The servers share an engine, so sessions live on. The client stays if every
// other address drains too. It also stays if it left this server less than drainPause ago: it came
// back because no other server answered.
func (e *Engine) leaves(c *conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	drains := func(at int) bool {
		since, known := e.drained[at]
		return known && now.Sub(since) < drainPause
	}
	if e.conn != c || drains(e.last) {
		return false
	}
	e.drained[e.last] = now
	for i := range e.endpoint.addresses {
		if at := (e.last + i) % len(e.endpoint.addresses); !drains(at) {
			e.last = at
			return true
		}
	}
	return false
}

// dial opens a connection to one server, up to its welcome.
func (e *Engine) dial(address string) (*conn, error) {
	ctx, cancel := context.WithTimeout(e.life, dialTime)
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
	defer context.AfterFunc(e.life, func() { nc.Close() })()
	c, err := e.shakeHands(ctx, nc, address, token)
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
	c, err := e.hello(nc, token)
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

// hello sends the first frame and reads the welcome.
func (e *Engine) hello(nc net.Conn, token string) (*conn, error) {
	if err := nc.SetDeadline(time.Now().Add(dialTime)); err != nil {
		return nil, err
	}
	hello := &wire.Hello{Protocol: wire.Protocol, Client: "lockkeeper", Token: token}
	if err := wire.WriteFrame(nc, &wire.ClientFrame{Hello: hello}); err != nil {
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
	return newConn(e, nc, in, f.GetWelcome().GetGuarantees().Read()), nc.SetDeadline(time.Time{})
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
