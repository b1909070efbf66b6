package quorumlock

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// A port is one listener for the nodes of a cluster and for new ones. It reads the first message of
// TLS on each connection, and passes the connection on with that message unread:
//
//	                               ┌─ protocol join.Protocol ──> join
//	connection ── first message ───┤
//	                               └─ anything else ───────────> Accept
//
// Its receiver makes the TLS handshake. Connections whose first message is not complete are
// bounded: 64, for 5 s each.
type port struct {
	listener net.Listener
	join     func(context.Context, net.Conn) // serves the connection of a new node, and closes it
	log      *slog.Logger
	arrivals *limits.Arrivals
	accepted chan net.Conn
	life     context.Context // ends with Close
	end      context.CancelFunc
	running  sync.WaitGroup
}

const (
	mostArrivals     = 64
	firstMessageTime = 5 * time.Second
	retryPause       = 100 * time.Millisecond // after an error of Accept, such as too many open files
)

// newPort serves connections from l. Its owner calls Accept until Close.
func newPort(l net.Listener, join func(context.Context, net.Conn), log *slog.Logger) *port {
	p := &port{
		listener: l,
		join:     join,
		log:      log,
		arrivals: limits.NewArrivals(mostArrivals),
		accepted: make(chan net.Conn),
	}
	p.life, p.end = context.WithCancel(context.Background())
	p.running.Go(p.run)
	return p
}

// Accept implements net.Listener. It returns the next connection that is not of a new node.
func (p *port) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.life.Done():
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (p *port) Addr() net.Addr { return p.listener.Addr() }

// Close implements net.Listener. Connections that were passed on stay open.
func (p *port) Close() error {
	p.end()
	return p.listener.Close()
}

// wait returns when all goroutines of a closed port have ended, those of join included.
func (p *port) wait() { p.running.Wait() }

func (p *port) run() {
	for {
		raw, err := p.listener.Accept()
		if err == nil {
			if arrival := p.arrivals.Enter(raw, p.life.Done()); arrival != nil {
				p.running.Go(func() { p.pass(raw, arrival) })
			} else {
				raw.Close()
			}
			continue
		}
		select {
		case <-p.life.Done():
			return
		default:
			p.log.Warn("can't accept a connection of a node", "error", err, "again_in", retryPause)
		}
		select {
		case <-p.life.Done():
			return
		case <-time.After(retryPause):
		}
	}
}

// pass reads the first message of a connection, and passes the connection on.
func (p *port) pass(raw net.Conn, arrival *limits.Arrival) {
	defer arrival.Leave()
	closes := context.AfterFunc(p.life, func() { raw.Close() })
	protocols, first, err := readFirstMessage(raw)
	if err == nil {
		err = raw.SetReadDeadline(time.Time{})
	}
	if !closes() || err != nil {
		raw.Close()
		return
	}
	c := &resumed{Conn: raw, first: first}
	if slices.Contains(protocols, join.Protocol) {
		arrival.Leave() // join has bounds of its own
		p.join(p.life, c)
		return
	}
	select {
	case p.accepted <- c:
	case <-p.life.Done():
		raw.Close()
	}
}

var errComplete = errors.New("the first message of TLS is complete")

// readFirstMessage reads the first message of a TLS client. It returns the protocols that the client
// offers, and all bytes that it has read.
func readFirstMessage(raw net.Conn) (protocols []string, read []byte, err error) {
	if err := raw.SetReadDeadline(time.Now().Add(firstMessageTime)); err != nil {
		return nil, nil, err
	}
	var copied bytes.Buffer
	err = tls.Server(&listening{Conn: raw, from: io.TeeReader(raw, &copied)}, &tls.Config{
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			protocols = slices.Clone(info.SupportedProtos)
			return nil, errComplete
		},
	}).Handshake()
	if !errors.Is(err, errComplete) {
		return nil, nil, err
	}
	return protocols, copied.Bytes(), nil
}

// listening is a connection on which nothing is sent.
type listening struct {
	net.Conn
	from io.Reader
}

func (l *listening) Read(b []byte) (int, error)  { return l.from.Read(b) }
func (l *listening) Write(b []byte) (int, error) { return len(b), nil }

// resumed is a connection whose first bytes were read before. One goroutine at a time reads it.
type resumed struct {
	net.Conn
	first []byte
}

// Read reads the first bytes, and then the connection.
func (r *resumed) Read(b []byte) (int, error) {
	if len(r.first) == 0 {
		return r.Conn.Read(b)
	}
	n := copy(b, r.first)
	r.first = r.first[n:]
	return n, nil
}

// CloseWrite closes the sending side.
func (r *resumed) CloseWrite() error {
	half, ok := r.Conn.(halfCloser)
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// A halfCloser is a connection that can close its sending side and still read, as *net.TCPConn can.
type halfCloser interface{ CloseWrite() error }
