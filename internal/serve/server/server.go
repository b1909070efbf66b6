package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// Bounds of one server and of each of its connections.
const (
	helloTime   = 10 * time.Second // in which a new connection must say hello, TLS included
	writeTime   = 30 * time.Second // in which a client must read what one write sends
	turn        = 64               // requests of one connection that are answered before others have their turn
	maxAtWork   = 1024             // requests of one connection that an engine works on
	maxLists    = 64               // lists of one connection
	maxArrivals = 512              // connections at a time that have not said yet who they are
	ownUnsent   = 32 << 10         // unread bytes of one connection that are not counted
	maxUnsent   = 1 << 20          // likewise, if its identity's share allows: beyond it hints are dropped
	ownFrame    = 16 << 10         // frames above this size take room of all connections, and must arrive in frameTime
	firstRoom   = 64 << 10         // that they take first, when ownFrame of them has arrived
	frameTime   = 10 * time.Second
	sweepTime   = time.Minute // between looks for sessions that are long over
)

// Options of a server. The zero value is fine.
type Options struct {
	Logger *slog.Logger // nil: nothing is logged
	Name   string       // name and version sent to clients; "" is "lockkeeper"

	// Gate decides who is let in, and what they may do with the engine. nil lets
	// everybody do everything.
	Gate *access.Gate
	// About tells the server's version, and counts its claims and sessions; the
	// server adds what it knows itself. It may be nil.
	About func(context.Context) lockkeeper.ServerState
	// Drain is called when somebody who may do so asks for it. It should call
	// [Server.Drain], and see to it that the process ends when nobody needs it any
	// more; it must not wait for that. With nil, clients can't drain the server.
	Drain func(reason string)
	// Trace returns a context within the span that a client has named, as W3C Trace
	// Context writes it; what is not written so is of no account. It may be nil.
	Trace func(ctx context.Context, traceparent string) context.Context
}

// A Server exports one engine to clients that come by network. It is safe for
// concurrent use.
type Server struct {
	gate     *access.Gate
	options  Options
	logger   *slog.Logger
	routes   routes
	arrivals *limits.Arrivals
	life     context.Context // ends when Shutdown gives up waiting
	kill     context.CancelFunc
	drained  atomic.Bool   // clients were notified that the server takes no new claims
	ending   atomic.Bool   // the server notifies clients of no more grants
	closing  chan struct{} // closed when no further connection is taken

	mu        sync.Mutex // guards all below
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	closed    bool
	ended     sync.WaitGroup // of connections
}

// New returns a server of the engine, which it never closes. A gate in the options
// must be one to this engine.
func New(e lockkeeper.Engine, o Options) *Server {
	s := &Server{
		gate: o.Gate, options: o, logger: o.Logger, closing: make(chan struct{}),
		listeners: make(map[net.Listener]struct{}), conns: make(map[*conn]struct{}),
	}
	if s.gate == nil {
		s.gate = access.New(e, nil, access.Options{Uncounted: true})
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	s.options.Name = cmp.Or(o.Name, "lockkeeper")
	s.routes.began = time.Now()
	s.arrivals = limits.NewArrivals(limits.MostArrivals)
	s.life, s.kill = context.WithCancel(context.Background())
	return s
}

// Serve accepts connections from l until Shutdown, and then returns nil. It
// returns an error if l fails for another reason. Several listeners may be served
// at once; one for TLS is made by [tls.NewListener]. It closes l.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	sweeping, stop := context.WithCancel(s.life)
	defer stop()
	go s.sweep(sweeping)
	for pause := time.Duration(0); ; {
		nc, err := l.Accept()
		if err == nil {
			pause = 0
			s.welcome(nc)
			continue
		}
		if s.isClosed() {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		// Such as too many open files: it passes when connections end.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.logger.Warn("can't accept a connection", "error", err, "again_in", pause)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.life.Done():
			timer.Stop()
		}
	}
}

// welcome begins to serve a connection. It waits while too many others are unauthenticated.
func (s *Server) welcome(nc net.Conn) {
	arrival := s.arrivals.Enter(nc, s.closing)
	if arrival == nil {
		limits.HangUp(nc)
		return
	}
	c := newConn(s, nc)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		arrival.Leave()
		limits.HangUp(nc)
		return
	}
	s.conns[c] = struct{}{}
	s.ended.Add(1)
	s.mu.Unlock()
	go func() {
		c.run(arrival)
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		s.ended.Done()
	}()
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Shutdown drains the server if that was not done, stops listening, reads no
// further requests, answers those that it has, and closes the connections. Clients
// are told of no grant from now on: where the engine outlives the server, they find
// it when they come back. When
// ctx ends before, it closes them at once and returns ctx's error. Sessions live on
// in the engine, which stays open.
func (s *Server) Shutdown(ctx context.Context) error {
	s.ending.Store(true)
	s.Drain("the server is stopping")
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	for l := range s.listeners {
		l.Close()
	}
	for c := range s.conns {
		c.finish()
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.ended.Wait()
		close(done)
	}()
	defer s.kill()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.kill()
	s.mu.Lock()
	for c := range s.conns {
		limits.HangUp(c.net)
		c.close()
	}
	s.mu.Unlock()
	<-done
	return ctx.Err()
}

// sweep forgets sessions that were not heard of for longer than they can live.
func (s *Server) sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepTime)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.routes.sweep(time.Now())
		case <-ctx.Done():
			return
		}
	}
}
