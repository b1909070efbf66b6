package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// handshake performs the handshake: TLS, if the listener speaks it, the first frame, and the gate. It
// writes by itself: the writing goroutine begins later.
func (c *conn) handshake() error {
	defer c.Flush()
	until := time.Now().Add(handshakeTime)
	if err := c.readBy(until); err != nil {
		return err
	}
	certificate, err := c.handshakeTLS(until)
	if err != nil {
		return err
	}
	if err := c.noHTTP(until); err != nil {
		return err
	}
	f := new(wire.ClientFrame)
	if _, err := c.frame(wire.MaxHandshake, func(message []byte) error { return wire.ReadFrame(message, f) }); err != nil {
		return err
	}
	if f.GetHello().GetProtocol() != wire.Protocol {
		err := &lockkeeper.Error{Err: lockkeeper.ErrUnsupported, Detail: fmt.Sprintf(
			"this server speaks protocol %d of lk://, and the client protocol %d: use client and server of one version",
			wire.Protocol, f.GetHello().GetProtocol())}
		c.post(&wire.ServerFrame{Refused: wire.NewError(err)})
		return err
	}
	if err := c.admit(f.GetHello().GetToken(), certificate); err != nil {
		c.post(&wire.ServerFrame{Refused: wire.NewError(err)})
		return err
	}
	name := f.GetHello().GetClient()
	name = name[:min(len(name), wire.MaxName)]
	c.server.logger.Debug("client", "from", c.net.RemoteAddr(), "name", name, "identity", c.identity)
	nodes := c.server.nodes.Load()
	draining, _ := c.server.gate.Draining()
	c.post(&wire.ServerFrame{
		Welcome: &wire.Welcome{
			Protocol:   wire.Protocol,
			Server:     c.server.options.Name,
			Guarantees: wire.NewGuarantees(c.engine.Guarantees()),
			Cluster:    nodes,
		},
		Draining: draining,
	})
	c.Lock()
	c.welcomed, c.stated = true, nodes // from now on Drain and followNodes notify this client
	c.Unlock()
	if why, yes := c.server.gate.Draining(); yes && draining == "" { // it began meanwhile
		c.post(&wire.ServerFrame{Draining: why})
	}
	return c.readBy(time.Time{})
}

// admit asks the gate for a pass.
func (c *conn) admit(token string, certificate *x509.Certificate) error {
	pass, err := c.server.gate.Admit(access.Credentials{
		Token:       token,
		Certificate: certificate,
		From:        c.net.RemoteAddr().String(),
	})
	if err != nil {
		return err
	}
	if err := pass.Usage().Take(limits.Connections, 1); err != nil {
		full := err.(*lockkeeper.Error)
		full.Err = lockkeeper.ErrUnavailable // not a refusal: the client may repeat it
		return full
	}
	c.pass, c.gone, c.identity, c.engine = pass, pass.Done(), pass.Name(), pass.Engine()
	c.usage = pass.Usage()
	c.prompt = c.engine.Guarantees().Prompt
	c.group, _ = c.engine.(lockkeeper.GroupCommitter)
	c.starter, _ = c.engine.(lockkeeper.Starter)
	return nil
}

// handshakeTLS performs the TLS handshake if the listener speaks TLS, and returns the client's verified
// certificate, if there is one. It refuses a client that does not agree on TLS.
func (c *conn) handshakeTLS(until time.Time) (*x509.Certificate, error) {
	secure, ok := c.net.(*tls.Conn)
	if !ok {
		return nil, c.plain()
	}
	if err := secure.SetWriteDeadline(until); err != nil {
		return nil, err
	}
	err := secure.Handshake()
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && plain.Conn != nil {
		// The client can read the answer only without TLS.
		if isHTTP(plain.RecordHeader[:]) {
			_, _ = plain.Conn.Write(notHTTP)
			return nil, errNotHTTP
		}
		_ = wire.WriteFrame(plain.Conn, &wire.ServerFrame{Refused: wire.NewError(&lockkeeper.Error{
			Err: lockkeeper.ErrUnsupported, Detail: "this server speaks TLS: its URL begins with lks://",
		})})
	}
	if err != nil {
		return nil, fmt.Errorf("no TLS: %w", err)
	}
	if state := secure.ConnectionState(); len(state.VerifiedChains) > 0 {
		return state.PeerCertificates[0], nil
	}
	return nil, nil
}

// plain refuses a client that begins with TLS, where the listener does not speak it.
func (c *conn) plain() error {
	first, err := c.in.Peek(1)
	if err != nil || first[0] != tlsHandshake[0] {
		return err // no frame begins as TLS does
	}
	if first, err = c.in.Peek(len(tlsHandshake)); err != nil || !bytes.Equal(first, tlsHandshake) {
		return err
	}
	refused := &lockkeeper.Error{Err: lockkeeper.ErrUnsupported,
		Detail: "this server does not speak TLS: its URL begins with lk://, and not with lks://"}
	c.post(&wire.ServerFrame{Refused: wire.NewError(refused)})
	return refused
}

// noHTTP refuses a client that speaks HTTP, with an HTTP response.
func (c *conn) noHTTP(until time.Time) error {
	first, err := c.in.Peek(1)
	if err != nil || first[0] < 'A' || first[0] > 'Z' {
		return err // no frame begins as HTTP does
	}
	if first, err = c.in.Peek(len(httpMethods[0])); err != nil || !isHTTP(first) {
		return err
	}
	if err := c.net.SetWriteDeadline(until); err != nil {
		return err
	}
	_, _ = c.net.Write(notHTTP) // the connection ends in any case
	return errNotHTTP
}

// httpMethods are the first bytes of HTTP requests. No first frame begins with them: after the
// length it has the tag of hello, which is no letter.
var httpMethods = [...]string{"GET ", "HEAD", "POST", "PUT ", "DELE", "PATC", "OPTI", "PRI ", "LOCK", "UNLO"}

func isHTTP(first []byte) bool {
	return slices.ContainsFunc(httpMethods[:], func(method string) bool { return bytes.HasPrefix(first, []byte(method)) })
}

var errNotHTTP = errors.New("the client speaks HTTP at the port of lk://")

// notHTTP is the response to an HTTP client.
var notHTTP = func() []byte {
	const text = "This port is for lk and Go programs (lk://). HTTP is at another port of this server, mostly 7421.\n"
	return fmt.Appendf(nil, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s",
		len(text), text)
}()

// tlsHandshake are the first bytes of every TLS connection. No frame begins with them: its message
// would have a field with the number 0.
var tlsHandshake = []byte{22, 3}

// linger reads the remaining bytes of a refused client. If they stayed unread, the client's system
// could discard the refusal.
func (c *conn) linger() {
	raw := c.net
	if secure, ok := raw.(*tls.Conn); ok {
		raw = secure.NetConn()
	}
	if half, ok := raw.(halfCloser); !ok || half.CloseWrite() != nil {
		return
	}
	if c.readBy(time.Now().Add(limits.ArrivalTime)) == nil {
		_, _ = io.CopyN(io.Discard, raw, firstRoom)
	}
}

// halfCloser is a connection that can close its sending side and still read, as *net.TCPConn can.
type halfCloser interface {
	CloseWrite() error
}
