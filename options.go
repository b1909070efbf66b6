package lockkeeper

import (
	"crypto/rand"
	"log/slog"
	mathrand "math/rand/v2"
	"strings"
	"time"
)

// A ClientOption changes how [New] makes a client. A value that is out of range
// is refused by every call of the client, with the range.
type ClientOption func(*Client)

// SessionTTL sets for how long the client's session outlives its last renewal
// at the engine: [MinTTL] to [MaxTTL], or 0, for as long as the program runs,
// where the engine claims [Guarantees].NoExpiry. Without it the TTL is 0 where
// that is allowed, else [DefaultTTL].
func SessionTTL(d time.Duration) ClientOption {
	return func(c *Client) { c.session.TTL = d }
}

// SessionID sets the id of the client's session, instead of a random one. The
// session is taken over if it is open: claims that another client has under it
// end as [Superseded]. Whoever knows the id can do the same.
func SessionID(id string) ClientOption {
	return func(c *Client) {
		c.session.ID = id
		// An earlier client of this session may have used the low numbers, and
		// a claim's id is never used twice (R16). JSON keeps 53 bits.
		c.ids = mathrand.Uint64() >> (64 - 52)
	}
}

// SessionLabel tells people who the client is. Claims that say nothing else
// about themselves carry it too.
func SessionLabel(l Label) ClientOption {
	return func(c *Client) { c.session.Label = l }
}

// BootClock replaces the clock by which the client counts deadlines. The clock must never
// go back, must go on while the computer sleeps, and must not be slower than the engine's.
// The default is [NewBootClock]. On Linux that clock advances by CLOCK_BOOTTIME or by
// time.Since, whichever advanced more, so leases run out and are renewed in a
// [testing/synctest] bubble too. Elsewhere it is Go's monotonic clock. In a bubble, real
// time counts too: a test that compares exact durations passes a clock made of time.Since.
func BootClock(now func() time.Duration) ClientOption {
	return func(c *Client) { c.clock = now }
}

// SharedEngine makes [Client.Close] leave the engine open. It is for several clients of
// one engine in this process: the program closes the engine after the last client.
func SharedEngine() ClientOption {
	return func(c *Client) { c.keepsEngine = true }
}

// Logger says where the client tells of losses and of what it repeats in the
// background. Without it, nowhere: every loss is told to its holder anyway.
func Logger(l *slog.Logger) ClientOption {
	return func(c *Client) { c.logger = l }
}

// randomSessionID has 60 random bits, enough never to meet another one.
func randomSessionID() string { return strings.ToLower(rand.Text()[:12]) }

// monotonicClock counts from now on the clock of Go's own timers.
func monotonicClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
