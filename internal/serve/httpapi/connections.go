package httpapi

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// connections has the connections of one server. A client without credentials gets one answer per
// connection, so it never keeps an idle one. Until it has sent its request, it may lose its slot to
// another connection. connections is safe for concurrent use.
type connections struct {
	arrivals *limits.Arrivals
	gone     <-chan struct{} // closed when the server stops

	mu sync.Mutex
	of map[net.Conn]*connection
}

// A connection belongs to the identity that authenticated over it first.
type connection struct {
	arrival *limits.Arrival

	mu     sync.Mutex
	usage  *limits.Identity // nil: unauthenticated
	closed bool
}

func newConnections(gone <-chan struct{}) *connections {
	return &connections{
		arrivals: limits.NewArrivals(limits.MostHTTPArrivals), gone: gone, of: make(map[net.Conn]*connection),
	}
}

// connectionKey finds a request's connection in its context.
type connectionKey struct{}

// begin is http.Server.ConnContext. It waits while too many others are unauthenticated. No request waits for
// the end of an outage: its client is told, and can ask again.
func (cs *connections) begin(ctx context.Context, nc net.Conn) context.Context {
	ctx = roundtrip.EndInOutage(ctx)
	arrival := cs.arrivals.Enter(nc, cs.gone)
	if arrival == nil {
		limits.HangUp(nc) // the HTTP server's next read fails
		return ctx
	}
	c := &connection{arrival: arrival}
	cs.mu.Lock()
	cs.of[nc] = c
	cs.mu.Unlock()
	return context.WithValue(ctx, connectionKey{}, c)
}

// state is http.Server.ConnState.
func (cs *connections) state(nc net.Conn, s http.ConnState) {
	if s == http.StateIdle {
		return
	}
	cs.mu.Lock()
	c := cs.of[nc]
	if s == http.StateClosed || s == http.StateHijacked {
		delete(cs.of, nc)
	}
	cs.mu.Unlock()
	switch {
	case c == nil:
	case s == http.StateActive && !c.isKnown():
		c.arrival.Request()
	case s == http.StateClosed, s == http.StateHijacked:
		c.end()
	}
}

// connectionOf returns the connection of a request; nil if its server is not the API's own.
func connectionOf(r *http.Request) *connection {
	c, _ := r.Context().Value(connectionKey{}).(*connection)
	return c
}

// isKnown reports whether a client has authenticated over c.
func (c *connection) isKnown() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usage != nil
}

// attribute counts the connection for the identity, unless an identity has authenticated over it
// before.
func (c *connection) attribute(usage *limits.Identity) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.usage != nil || c.closed {
		return nil
	}
	if err := usage.Take(limits.HTTPConnections, 1); err != nil {
		return err
	}
	c.usage = usage
	c.arrival.Leave()
	return nil
}

func (c *connection) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrival.Leave()
	if c.usage != nil {
		c.usage.Give(limits.HTTPConnections, 1)
	}
	c.usage, c.closed = nil, true
}

// take takes one unit of a resource for the caller; leave gives it back.
func (c *call) take(r limits.Resource) (leave func(), err error) {
	usage := c.pass.Usage()
	if err := usage.Take(r, 1); err != nil {
		return nil, err
	}
	return func() { usage.Give(r, 1) }, nil
}
