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
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// Bounds of one server and of each of its connections.
const (
	handshakeTime = 10 * time.Second // for TLS and the first frame
	writeTime     = 30 * time.Second // for one write
	yieldAfter    = 64               // requests of one frame, after which other goroutines run
	maxAtWork     = 1024             // requests of a connection that an engine works on
	maxLists      = 64               // lists of a connection
	ownUnsent     = 32 << 10         // unread bytes of a connection that its identity is not charged for
	maxUnsent     = 1 << 20          // unread bytes of a connection: beyond them hints are dropped, and answers wait
	ownFrame      = 16 << 10         // the identity is charged for larger frames, which must arrive within frameTime
	firstRoom     = 64 << 10         // the first charge for such a frame, when ownFrame bytes have arrived
	frameTime     = 10 * time.Second
	sweepTime     = time.Minute // between sweeps of ended sessions
)

// Options of a server. The zero value is fine.
type Options struct {
	Logger *slog.Logger // nil: nothing is logged
	Name   string       // name and version sent to clients; "" is "lockkeeper"

	// Gate admits clients and gives each its view of the engine. nil lets everybody do everything.
	Gate *access.Gate
	// About returns the version and the counts of claims and sessions; the server adds the
	// rest. It may be nil.
	About func(context.Context) lockkeeper.ServerState
	// Drain is called for a client that may drain the server. It should call [Server.Drain],
	// and end the process once no claim is held or waits; it must not wait for that. With nil,
	// clients can't drain the server.
	Drain func(reason string)
	// Trace returns ctx within the client's span, which has the format of W3C Trace Context;
	// it ignores other formats. It may be nil.
	Trace func(ctx context.Context, traceparent string) context.Context
	// Cluster is the engine, if it is one node of a cluster. The server states the nodes to its
	// clients. nil: it is none.
	Cluster lockkeeper.ClusterNode
}

// A Server exports an engine to network clients. It is safe for concurrent use.
type Server struct {
	gate     *access.Gate
	options  Options
	logger   *slog.Logger
	routes   routes
	arrivals *limits.Arrivals
	life     context.Context // ends when Shutdown stops waiting
	kill     context.CancelFunc
	drained  atomic.Bool                  // clients were notified that the server takes no new claims
	ending   atomic.Bool                  // the server sends no hints of grants any more
	closing  chan struct{}                // closed when the server accepts no connections any more
	follow   sync.Once                    // begins followNodes
	nodes    atomic.Pointer[wire.Cluster] // nil: the engine is no node of a cluster

	mu        sync.Mutex // guards all below
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	closed    bool
	ended     sync.WaitGroup // of connections
}

// New returns a server of the engine, which it never closes. A gate in the options must be to that
// engine.
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
	if o.Cluster != nil {
		nodes, _ := o.Cluster.Nodes()
		s.nodes.Store(wire.NewCluster(&nodes))
	}
	return s
}

// Serve accepts connections from l until Shutdown, and then returns nil. It returns an error if l
// fails for another reason. Several listeners may be served at once; [tls.NewListener] makes one
// for TLS. Serve closes l before it returns.
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
	if s.options.Cluster != nil {
		s.follow.Do(func() { go s.followNodes() })
	}
	for pause := time.Duration(0); ; {
		nc, err := l.Accept()
		if err == nil {
			pause = 0
			s.accept(nc)
			continue
		}
		if s.isClosed() {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		// Such as too many open files: the cause may pass when connections end.
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

// accept begins to serve a connection. It waits while too many others are unauthenticated.
func (s *Server) accept(nc net.Conn) {
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

// Shutdown drains the server, stops listening and reading, answers the requests that it has read,
// and closes the connections. When ctx ends, it closes them at once and returns ctx's error. From
// the call on, the server sends no hints of grants: clients find their grants when they reconnect,
// if the engine outlives the server. The engine stays open, and sessions live on in it.
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

// sweep removes sessions that were not renewed within their TTL, from time to time.
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
