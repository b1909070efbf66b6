package redisconn

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// dialer returns a Dialer for go-redis. A failed attempt returns a connection on which everything
// fails with the same error, because go-redis logs the failures of its Dialer to stderr. config is nil
// for connections without TLS.
func dialer(config *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: pipelineBound, KeepAlive: silenceBound}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		var conn net.Conn
		var err error
		if config == nil {
			conn, err = plain.DialContext(ctx, network, address)
		} else {
			conn, err = (&tls.Dialer{NetDialer: plain, Config: config}).DialContext(ctx, network, address)
		}
		if err != nil {
			return failedConn{&net.OpError{Op: "dial", Net: network, Addr: addressText(address), Err: cause(err)}}, nil
		}
		return conn, nil
	}
}

// cause returns the error within that of a dialer, which names the address too.
func cause(err error) error {
	if op, ok := err.(*net.OpError); ok && op.Op == "dial" {
		return op.Err
	}
	return err
}

// addressText is an address as text.
type addressText string

func (addressText) Network() string  { return "tcp" }
func (a addressText) String() string { return string(a) }

// failedConn is a connection that could not be made.
type failedConn struct{ err error }

func (c failedConn) Read([]byte) (int, error)         { return 0, c.err }
func (c failedConn) Write([]byte) (int, error)        { return 0, c.err }
func (c failedConn) Close() error                     { return nil }
func (c failedConn) LocalAddr() net.Addr              { return addressText("") }
func (c failedConn) RemoteAddr() net.Addr             { return addressText("") }
func (c failedConn) SetDeadline(time.Time) error      { return nil }
func (c failedConn) SetReadDeadline(time.Time) error  { return nil }
func (c failedConn) SetWriteDeadline(time.Time) error { return nil }
