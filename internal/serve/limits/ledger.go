package limits

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A Resource is something that a server limits.
type Resource int

// The resources. An Identity counts Sessions, Claims, Waiting and Paths from its calls. Callers
// take the others and give them back.
const (
	Sessions        Resource = iota
	Claims                   // held and waiting
	Waiting                  // claims that wait
	Paths                    // targets of all claims; a path of two claims counts twice
	Connections              // of the wire protocol
	HTTPConnections          // over which the identity has authenticated
	Watchers                 // lists under way, of every kind: of a claim, a session, a path, everything
	BroadLists               // lists of everything or of all below a path: each keeps a copy
	Undelivered              // statuses that engines keep for lists until the client reads them
	Polls                    // HTTP requests that wait
	Streams                  // HTTP event streams
	Unsent                   // bytes of answers that clients have not read
	resources
)

// name names each resource in refusals.
var name = [resources]string{
	Sessions: "sessions", Claims: "claims", Waiting: "claims that wait", Paths: "paths",
	Connections: "connections to this server", HTTPConnections: "HTTP connections to this server",
	Watchers: "lists and watchers", BroadLists: "lists of all claims or of those of a path",
	Undelivered: "undelivered statuses", Polls: "long polls", Streams: "event streams",
	Unsent: "bytes of unread answers",
}

// Bounds are the limits of each resource. 0 is no limit.
type Bounds struct {
	Total [resources]int // of all identities together
	Each  [resources]int // of one identity; "" stands for all clients of an open server, and has no limit

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

// DefaultBounds returns the bounds of a server without configured limits.
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
	began  time.Time // the origin of all times that it records
	used   [resources]counter
	frames *room
	queues queues

	mu sync.Mutex
	of map[string]*Identity // never removed: a second Identity of the same name would count from zero
}

// New returns a ledger in which nothing is used.
func New(b Bounds) *Ledger {
	l := &Ledger{bounds: b, began: time.Now(), frames: newRoom(b.FrameBytes), of: make(map[string]*Identity)}
	l.queues.init()
	return l
}

// Identity returns the counts of the identity with that name.
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

// now returns the monotonic time since the ledger was made.
func (l *Ledger) now() time.Duration { return time.Since(l.began) }

// A counter counts what is used. It never exceeds a bound, not even for a moment.
type counter struct{ n atomic.Int64 }

// take counts n more, unless the sum would exceed most; 0 is no bound.
func (c *counter) take(n, most int) bool {
	if n == 0 {
		return true // also if the bound is now below what is used
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

// Keep counts n more undelivered statuses, and reports whether the bounds allow them. They allow a
// first list of any length. A negative n gives back. Keep implements lockkeeper.Query.Keep.
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

// bound returns the most that the identity may have of r, unless a quota overrides it.
func (i *Identity) bound(r Resource) int {
	if i.name == "" {
		return 0
	}
	return i.ledger.bounds.Each[r]
}

// take is Take with most as the bound of the identity.
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

// full returns the refusal of n more.
func (i *Identity) full(r Resource, n, most int) error {
	if n > most {
		return refused("%d %s are more than %d, the most that %s may have at a time", n, name[r], most, i.name)
	}
	return refused("%s has %d %s and asks for %d more: %d are the most that it may have; "+
		"release some, or wait until they end", i.name, i.Used(r), name[r], n, most)
}

// refused returns the refusal of a request that would exceed a bound.
func refused(format string, args ...any) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrDenied, Reason: lockkeeper.Quota, Detail: fmt.Sprintf(format, args...)}
}
