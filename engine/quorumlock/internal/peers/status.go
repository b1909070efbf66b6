package peers

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Status is what a Transport knows of one peer. Counts begin with the peer's first connection or
// address, and go on when the address changes.
type Status struct {
	ID      uint64
	Address string // "" if only a connection from the peer is known

	Connected bool      // to the peer
	Since     time.Time // when Connected became what it is, or the address was set
	LastError string    // why the latest attempt or connection to the peer failed; "" if none has

	Incoming      bool // the peer has a connection to this node
	IncomingSince time.Time

	Sent, SentBytes         uint64 // messages that were given to a connection, and their bytes
	Received, ReceivedBytes uint64
	Dropped                 uint64 // messages that Send or a connection that ended dropped
	Misaddressed            uint64 // received messages that were for another node
	Waiting, WaitingBytes   int    // messages that wait for the connection
}

// A peer is another node.
type peer struct {
	id       uint64
	sender   *sender     // nil without an address; guarded by Transport.mu
	incoming *connection // from the peer; guarded by Transport.mu, as the next field
	since    time.Time   // when it was made
	stated   string      // where the peer says that it listens, IP:PORT; "" if it does not; guarded likewise

	sent, sentBytes, received, receivedBytes, dropped, misaddressed atomic.Uint64
}

// A reach is whether a sender reaches its peer. It is safe for concurrent use.
type reach struct {
	mu        sync.Mutex
	connected bool
	since     time.Time
	lastError string
}

// up states that the connection to the peer is there.
func (r *reach) up() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connected, r.since = true, time.Now()
}

// down states why there is no connection to the peer. It reports whether that is news.
func (r *reach) down(err error) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connected {
		news, r.connected, r.since = true, false, time.Now()
	}
	return r.note(err) || news
}

// note keeps an error. The caller holds r.mu.
func (r *reach) note(err error) (news bool) {
	news = r.lastError != err.Error()
	r.lastError = err.Error()
	return news
}

// Status returns what is known of all peers, by id.
func (t *Transport) Status() []Status {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]Status, 0, len(t.peers))
	for _, p := range t.peers {
		all = append(all, p.status())
	}
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// status returns the status of a peer. The caller holds Transport.mu.
func (p *peer) status() Status {
	s := Status{
		ID:            p.id,
		Sent:          p.sent.Load(),
		SentBytes:     p.sentBytes.Load(),
		Received:      p.received.Load(),
		ReceivedBytes: p.receivedBytes.Load(),
		Dropped:       p.dropped.Load(),
		Misaddressed:  p.misaddressed.Load(),
	}
	if p.incoming != nil {
		s.Incoming, s.IncomingSince = true, p.since
	}
	if to := p.sender; to != nil {
		s.Address = to.address
		s.Waiting, s.WaitingBytes = to.queue.length()
		to.reach.mu.Lock()
		s.Connected, s.Since, s.LastError = to.reach.connected, to.reach.since, to.reach.lastError
		to.reach.mu.Unlock()
	}
	return s
}

// RefusedConnections returns how many connections to this node failed before they were authenticated,
// or were refused.
func (t *Transport) RefusedConnections() uint64 { return t.refusals.count.Load() }

// refusals count refused connections, and log at most one a second: anybody can cause them. A node that is
// refused again for the same reason, such as one that was removed and still runs, is logged once a minute.
type refusals struct {
	log   *slog.Logger
	count atomic.Uint64

	mu     sync.Mutex
	logged time.Time
	silent uint64 // refusals since then
	nodes  map[uint64]loggedRefusal
}

// A loggedRefusal is the latest one of a node that was logged.
type loggedRefusal struct {
	at  time.Time
	why string
}

const (
	repeatRefusal = time.Minute
	mostRefusals  = 64 // nodes that are remembered
)

// repeats reports whether the refusal of a node was logged lately, and else notes it. r is locked.
func (r *refusals) repeats(now time.Time, id uint64, why string) bool {
	if id == 0 {
		return false
	}
	if last, known := r.nodes[id]; known && last.why == why && now.Sub(last.at) < repeatRefusal {
		return true
	}
	if r.nodes == nil || len(r.nodes) >= mostRefusals {
		r.nodes = make(map[uint64]loggedRefusal)
	}
	r.nodes[id] = loggedRefusal{now, why}
	return false
}

// add notes a refusal. id is 0 if the node is not known.
func (r *refusals) add(from string, id uint64, err error) {
	r.count.Add(1)
	r.mu.Lock()
	now := time.Now()
	if now.Sub(r.logged) < time.Second || r.repeats(now, id, err.Error()) {
		r.silent++
		r.mu.Unlock()
		return
	}
	more := r.silent
	r.logged, r.silent = now, 0
	r.mu.Unlock()
	r.log.Warn("a connection of a peer is refused", "from", from, "node", formatID(id), "error", err,
		"unlogged_before", more)
}

// formatID returns an id as people know it: 16 hexadecimal digits.
func formatID(id uint64) string { return fmt.Sprintf("%016x", id) }
