package peers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// Settings are what a Transport does not decide itself. The functions are called by several goroutines
// at a time, and must not call the Transport, except for Receive, which may call Send.
type Settings struct {
	Cluster string // the cluster of all peers
	ID      uint64 // of this node

	// Address is where this node listens, IP:PORT. It tells peers, which may know another address of it.
	// "" if this node does not know it.
	Address string

	// Credentials returns the present certificate and key of this node, and the authorities that sign
	// the certificates of nodes. It is called for every connection.
	Credentials func() (tls.Certificate, *x509.CertPool, error)

	// Identify returns the node that a verified certificate belongs to, and an error if it is no
	// certificate of a node.
	Identify func(*x509.Certificate) (cluster string, id uint64, err error)

	// Allow returns an error, with words for the other node, if that node gets no connection although
	// its certificate is valid: it was expelled, or has another key than the cluster knows. Both ends
	// of every connection ask; call Transport.CheckAllowed when an answer changes. Nil allows all.
	Allow func(*x509.Certificate) error

	// Receive gets the messages, those that have arrived together at a time. Those of one connection come in
	// their order; while it runs, nothing more is read from that connection. From is the node in the
	// certificate, and To this node. The messages belong to Receive, the slice does not.
	Receive func([]replica.Message)

	// Silence is how long a connection lasts on which nothing is received; 0 means DefaultSilence. It
	// must not differ much between the nodes of a cluster.
	Silence time.Duration

	Log *slog.Logger // may be nil
}

// DefaultSilence is how long a connection lasts on which nothing is received.
const DefaultSilence = 3 * time.Second

// A Transport sends messages to the other nodes of a cluster and receives theirs. It is safe for
// concurrent use.
type Transport struct {
	settings Settings
	bounds   bounds
	forms    forms
	dial     func(ctx context.Context, address string) (net.Conn, error)

	life     context.Context // ends with Close
	end      context.CancelFunc
	running  sync.WaitGroup // all goroutines but those of Serve's callers
	arrivals *limits.Arrivals
	refusals refusals

	queued        quota // bytes in all queues
	largeSends    quota // bytes of large messages being sent
	largeReceived quota // bytes of large messages being received

	mu        sync.RWMutex
	closed    bool
	listeners map[net.Listener]struct{}
	peers     map[uint64]*peer // nodes with an address, or with a connection to this one
}

// bounds are those of the package comment.
type bounds struct {
	messages, bytes, bytesInAll int // that wait
	large                       int // bytes of large messages, in each direction
	peers                       int
	arrivals                    int
	handshake                   time.Duration
}

var usualBounds = bounds{
	messages:   4096,
	bytes:      8 << 20,
	bytesInAll: 32 << 20,
	large:      256 << 20,
	peers:      256,
	arrivals:   64,
	handshake:  5 * time.Second,
}

// New returns a Transport without peers. Invalid settings are ErrInvalid; among them is a certificate
// of another node.
func New(s Settings) (*Transport, error) { return newTransport(s, usualBounds) }

func newTransport(s Settings, b bounds) (*Transport, error) {
	if s.Silence == 0 {
		s.Silence = DefaultSilence
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	t := &Transport{
		settings: s,
		bounds:   b,
		forms:    ownForms,
		dial: func(ctx context.Context, to string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", to)
		},
		arrivals:      limits.NewArrivals(b.arrivals),
		queued:        quota{most: int64(b.bytesInAll)},
		largeSends:    quota{most: int64(b.large)},
		largeReceived: quota{most: int64(b.large)},
		listeners:     make(map[net.Listener]struct{}),
		peers:         make(map[uint64]*peer),
	}
	t.refusals.log = s.Log
	t.life, t.end = context.WithCancel(context.Background())
	return t, nil
}

func (s *Settings) check() error {
	switch {
	case s.Cluster == "" || s.ID == 0:
		return lockkeeper.Invalid("a transport needs a cluster and the id of its node, above 0")
	case s.Credentials == nil || s.Identify == nil || s.Receive == nil:
		return lockkeeper.Invalid("a transport needs the functions Credentials, Identify and Receive")
	case s.Address != "" && parseAddress(s.Address) == "":
		return lockkeeper.Invalid("the address %q of this node: want IP:PORT", s.Address)
	case s.Silence < 0:
		return lockkeeper.Invalid("a silence of %s: it must be positive", s.Silence)
	}
	own, _, err := s.Credentials()
	if err != nil {
		return fmt.Errorf("the certificate of this node: %w", err)
	}
	if len(own.Certificate) == 0 {
		return lockkeeper.Invalid("this node has no certificate")
	}
	leaf, err := x509.ParseCertificate(own.Certificate[0])
	if err != nil {
		return lockkeeper.Invalid("the certificate of this node: %s", err)
	}
	cluster, id, err := s.Identify(leaf)
	if err != nil {
		return lockkeeper.Invalid("the certificate of this node: %s", err)
	}
	if cluster != s.Cluster || id != s.ID {
		return lockkeeper.Invalid("this is node %016x of cluster %q, and its certificate is that of node %016x of cluster %q",
			s.ID, s.Cluster, id, cluster)
	}
	return nil
}

// allow asks Allow.
func (s *Settings) allow(c *x509.Certificate) error {
	if s.Allow == nil {
		return nil
	}
	return s.Allow(c)
}

// Send sends a message to the node m.To. It never blocks, and may drop the message: without a
// connection to that node, or if too much waits for it already. Nothing in m may change afterwards.
func (t *Transport) Send(m replica.Message) {
	t.mu.RLock()
	p := t.peers[m.To]
	var s *sender
	if p != nil {
		s = p.sender
	}
	t.mu.RUnlock()
	if s != nil {
		s.send(m)
	}
}

// Set states the address, HOST:PORT, at which a node listens for its peers. The Transport connects to
// it, also if it has nothing to send. Set has no effect on this node's own id, or without a change.
func (t *Transport) Set(id uint64, address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || id == 0 || id == t.settings.ID {
		return
	}
	p := t.peers[id]
	if p == nil {
		p = &peer{id: id}
		t.peers[id] = p
	}
	if p.sender != nil {
		if p.sender.address == address {
			return
		}
		p.sender.stop()
	}
	p.sender = newSender(t, p, address)
	t.running.Go(p.sender.run)
}

// Remove ends the connection to a node, and forgets its address. A connection of that node to this one
// stays, unless Settings.Allow says otherwise: the node may still learn that it was removed.
func (t *Transport) Remove(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.peers[id]; p != nil && p.sender != nil {
		p.sender.stop()
		p.sender = nil
		t.forget(p)
	}
}

// forget removes a peer without an address and a connection. The caller holds t.mu.
func (t *Transport) forget(p *peer) {
	if p.sender == nil && p.incoming == nil && t.peers[p.id] == p {
		delete(t.peers, p.id)
	}
}

// CheckAllowed asks Settings.Allow about all connections, and ends those that it does not allow.
func (t *Transport) CheckAllowed() {
	t.mu.RLock()
	var live []*connection
	for _, p := range t.peers {
		if p.incoming != nil {
			live = append(live, p.incoming)
		}
		if p.sender != nil {
			if c := p.sender.conn.Load(); c != nil {
				live = append(live, c)
			}
		}
	}
	t.mu.RUnlock()
	for _, c := range live {
		if err := t.settings.allow(c.stream.leaf); err != nil {
			c.Fail(err)
		}
	}
}

// Close ends all connections, and returns when Receive has returned and is called no more. Receive
// must not call it.
func (t *Transport) Close() {
	t.mu.Lock()
	t.closed = true
	t.end()
	for l := range t.listeners {
		l.Close()
	}
	t.mu.Unlock()
	t.running.Wait()
}

var errClosed = errors.New("this node closes its connections")

// A quota limits a sum.
type quota struct {
	most int64
	used atomic.Int64
}

// take adds n, and reports whether that is within the quota; else it adds nothing.
func (q *quota) take(n int) bool {
	if q.used.Add(int64(n)) > q.most {
		q.used.Add(-int64(n))
		return false
	}
	return true
}

func (q *quota) release(n int) { q.used.Add(-int64(n)) }
