package lockkeeper

import (
	"crypto/rand"
	"log/slog"
	mathrand "math/rand/v2"
	"strings"
	"time"
)

// A ClientOption changes how [New] makes a client. A value that is out of range is refused by every
// call of the client, with the range.
type ClientOption func(*Client)

// SessionTTL sets for how long the session outlives its last renewal at the engine: [MinTTL] to
// [MaxTTL], or 0, for as long as the program runs, if the engine declares [Guarantees].NoExpiry.
// The default is 0 where that is allowed, else [DefaultTTL].
func SessionTTL(d time.Duration) ClientOption {
	return func(c *Client) { c.session.TTL = d }
}

// SessionID sets the id of the client's session, in place of a random one. The client takes over a
// session that is open: claims that another client has under it end as [Superseded]. Everybody who
// knows the id can do the same.
func SessionID(id string) ClientOption {
	return func(c *Client) {
		c.session.ID = id
		// Ids are never used twice (R16), and an earlier client of this session may have used the
		// low ones. Some readers of JSON keep only 53 bits of a number.
		c.ids.Store(mathrand.Uint64() >> (64 - 52))
	}
}

// SessionLabel tells people who the client is. Claims without a label of their own carry it too.
func SessionLabel(l Label) ClientOption {
	return func(c *Client) { c.session.Label = l }
}

// BootClock replaces the clock by which the client counts deadlines. The clock must never
// go back, must go on while the computer sleeps, and must not be slower than the engine's.
// The default is [NewBootClock]. On Linux that clock advances by CLOCK_BOOTTIME or by
// time.Since, whichever advanced more, so the client renews and ends leases in a
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

// Logger sets where the client logs losses, and calls that it repeats in the background. The
// default is nowhere: holders learn of every loss anyway.
func Logger(l *slog.Logger) ClientOption {
	return func(c *Client) { c.logger = l }
}

// randomSessionID returns an id of 60 random bits, enough never to collide.
func randomSessionID() string { return strings.ToLower(rand.Text()[:12]) }

// monotonicClock returns a clock that counts from now on, by the clock of Go's timers.
func monotonicClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
