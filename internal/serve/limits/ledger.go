package limits

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A Resource is something of which a server has only so much.
type Resource int

// The resources. Sessions, Claims, Waiting and Paths are counted by the calls of an Identity; the
// others are taken and given back.
const (
	Sessions        Resource = iota
	Claims                   // held and waiting
	Waiting                  // claims that wait
	Paths                    // targets of all claims; a path of two claims counts twice
	Connections              // of the wire protocol
	HTTPConnections          // over which the identity was let in
	Watchers                 // lists under way, of every kind: of a claim, a session, a path, everything
	BroadLists               // lists of everything or of all below a path: each keeps a copy
	Undelivered              // statuses that engines keep for lists until the client takes them
	Polls                    // HTTP requests that wait
	Streams                  // HTTP event streams
	Unsent                   // bytes of answers that clients have not read
	resources
)

// name is what people read in a refusal.
var name = [resources]string{
	Sessions: "sessions", Claims: "claims", Waiting: "claims that wait", Paths: "paths",
	Connections: "connections to this server", HTTPConnections: "HTTP connections to this server",
	Watchers: "lists and watchers", BroadLists: "lists of all claims or of those of a path",
	Undelivered: "undelivered statuses", Polls: "long polls", Streams: "event streams",
	Unsent: "bytes of unread answers",
}

// Bounds say how much of each resource there is. 0 is no bound.
type Bounds struct {
	Total [resources]int // of all identities together
	Each  [resources]int // of one identity; the identity "" is everybody of an open server, and has none

	SessionClaims  int // claims of one session; a Quota may say otherwise
	WaitingPerPath int // claims that wait for one path
	FrameBytes     int // of large frames, of all together
	FrameBytesEach int // likewise, of one identity
}

// The default bounds of a server.
const (
	DefaultClaims         = 1_000_000
	DefaultSessions       = 262_144
	DefaultIdentityClaims = 100_000
	DefaultSessionClaims  = 10_000
	DefaultWaitingPerPath = 100_000
	DefaultConnections    = 16_384
)

// DefaultBounds returns the bounds of a server that nobody has configured.
func DefaultBounds() Bounds {
	b := Bounds{
		SessionClaims:  DefaultSessionClaims,
		WaitingPerPath: DefaultWaitingPerPath,
		FrameBytes:     64 << 20,
		FrameBytesEach: 16 << 20,
	}
	for _, r := range []struct {
		of          Resource
		total, each int
	}{
		{Sessions, DefaultSessions, 0},
		{Claims, DefaultClaims, DefaultIdentityClaims},
		{Connections, DefaultConnections, DefaultConnections / 4},
		{HTTPConnections, DefaultConnections, DefaultConnections / 4},
		{Watchers, 4096, 256},
		{BroadLists, 64, 8},
		{Undelivered, 1 << 18, 1 << 15},
		{Polls, 4096, 1024},
		{Streams, 1024, 16},
		{Unsent, 256 << 20, 64 << 20},
	} {
		b.Total[r.of], b.Each[r.of] = r.total, r.each
	}
	return b
}

// A Ledger counts what all identities of one server use. It is safe for concurrent use.
type Ledger struct {
	bounds Bounds
	began  time.Time // the zero of all times that it notes
	used   [resources]counter
	frames *room
	queues queues

	mu sync.Mutex
	of map[string]*Identity // an identity stays: what it has must never be counted twice
}

// New returns a ledger in which nothing is used.
func New(b Bounds) *Ledger {
	l := &Ledger{bounds: b, began: time.Now(), frames: newRoom(b.FrameBytes), of: make(map[string]*Identity)}
	l.queues.init()
	return l
}

// Identity returns what the identity of that name uses.
func (l *Ledger) Identity(name string) *Identity {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.of[name]
	if i == nil {
		i = newIdentity(name, l)
		l.of[name] = i
	}
	return i
}

// Used returns how much all identities together use.
func (l *Ledger) Used(r Resource) int { return int(l.used[r].n.Load()) }

// now is the time since the ledger was made. It does not jump with the wall clock.
func (l *Ledger) now() time.Duration { return time.Since(l.began) }

// A counter counts what is used. It never exceeds a bound, not even for a moment.
type counter struct{ n atomic.Int64 }

// take counts n more, unless that would be more than most; 0 is no bound.
func (c *counter) take(n, most int) bool {
	if n == 0 {
		return true // also if a bound was lowered beneath what is used
	}
	if most <= 0 {
		c.n.Add(int64(n))
		return true
	}
	for {
		have := c.n.Load()
		if have+int64(n) > int64(most) {
			return false
		}
		if c.n.CompareAndSwap(have, have+int64(n)) {
			return true
		}
	}
}

func (c *counter) give(n int) {
	if n != 0 {
		c.n.Add(-int64(n))
	}
}

// Take counts n more of r, or refuses with the reason Quota.
func (i *Identity) Take(r Resource, n int) error {
	return i.take(r, n, i.bound(r))
}

// Give is the reverse of Take.
func (i *Identity) Give(r Resource, n int) {
	i.used[r].give(n)
	i.ledger.used[r].give(n)
}

// Keep counts n more undelivered statuses, and reports whether that is allowed. A first list is
// allowed however long it is. A negative n gives back. It is lockkeeper.Query.Keep.
func (i *Identity) Keep(n int) bool {
	switch {
	case n <= 0:
		i.Give(Undelivered, -n)
		return true
	case i.used[Undelivered].n.CompareAndSwap(0, int64(n)):
		i.ledger.used[Undelivered].take(n, 0)
		return true
	}
	return i.Take(Undelivered, n) == nil
}

// Used returns how much the identity uses.
func (i *Identity) Used(r Resource) int { return int(i.used[r].n.Load()) }

// bound is the most that the identity may have of r, unless a quota says otherwise.
func (i *Identity) bound(r Resource) int {
	if i.name == "" {
		return 0
	}
	return i.ledger.bounds.Each[r]
}

// take is Take with another bound of the identity.
func (i *Identity) take(r Resource, n, most int) error {
	if !i.used[r].take(n, most) {
		return i.full(r, n, most)
	}
	if total := i.ledger.bounds.Total[r]; !i.ledger.used[r].take(n, total) {
		i.used[r].give(n)
		return refused("all together have %d %s, which is the most that this server takes; try again when some have ended",
			total, name[r])
	}
	return nil
}

// full is the refusal of n more.
func (i *Identity) full(r Resource, n, most int) error {
	if n > most {
		return refused("%d %s are more than %d, the most that %s may have at a time", n, name[r], most, i.name)
	}
	return refused("%s has %d %s and asks for %d more: %d are the most that it may have; release some, or wait until they end",
		i.name, i.Used(r), name[r], n, most)
}

// refused is the refusal of what would exceed a bound.
func refused(format string, args ...any) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrDenied, Reason: lockkeeper.Quota, Detail: fmt.Sprintf(format, args...)}
}
