package quorum

import (
	"slices"
	"time"
)

// A timebase estimates the common time base: microseconds that all parties count about equally. It
// orders tickets, epochs and changes; nothing that must be safe depends on it. Per server,
//
//	offset = time of the server - sent on the boot clock
//
// at the exchange with the smallest round trip. So the estimate is never below the server's clock, and
// above it by the way to the server, at most. Of two requests, of which one is sent after the other was
// answered, the later one has the higher ticket, because a party answers that a claim waits only when
// its ticket has passed on the servers' clocks (see passed):
//
//	ticket of the first <= time of its answer
//	                    <= time when the second is sent <= ticket of the second
//
// As a rule the ticket has passed when the replies arrive. It has not if the way to the servers took
// longer in the exchanges with the smallest round trips than the whole first request.
//
// The middle of sent and received, as NTP has it, would be nearer, but below the clock after a slow
// answer. The common time is the boot clock plus the median of the offsets: one server with a wrong
// clock does not move it beyond the others.
type timebase struct {
	samples []sample
	known   int
	last    uint64 // the latest ticket, epoch, change or number of a lease
	timers  uint64 // that were created
}

type sample struct {
	offset Micros
	rtt    time.Duration
	at     time.Duration
	known  bool
}

func newTimebase(servers int) timebase { return timebase{samples: make([]sample, servers)} }

// sampleAging is how much a sample loses with time: clocks differ by 100 µs per second at most
// unless something is wrong, so a newer sample with a slightly longer round trip is better.
const sampleAging = 10_000

func (b *timebase) learn(server int, sent, received time.Duration, now Micros) {
	if now <= 0 || received < sent {
		return
	}
	s := &b.samples[server]
	rtt := received - sent
	offset := now - micros(sent)
	wrong := offset - s.offset // the clock of the server was set
	if s.known && rtt > s.rtt+(received-s.at)/sampleAging && max(wrong, -wrong) <= micros(rtt+s.rtt)+1000 {
		return
	}
	if !s.known {
		b.known++
	}
	*s = sample{offset, rtt, received, true}
}

func (b *timebase) forget(server int) {
	if b.samples[server].known {
		b.samples[server] = sample{}
		b.known--
	}
}

// offset returns the median offset.
func (b *timebase) offset() Micros { return b.median(func(s *sample) Micros { return s.offset }) }

// median returns the median of what of says of each server; 0 if no server is known.
func (b *timebase) median(of func(*sample) Micros) Micros {
	var buffer [7]Micros
	known := buffer[:0]
	for i := range b.samples {
		if s := &b.samples[i]; s.known {
			known = append(known, of(s))
		}
	}
	if len(known) == 0 {
		return 0
	}
	slices.Sort(known)
	return known[(len(known)-1)/2]
}

// common returns the common time of a moment on the boot clock.
func (b *timebase) common(at time.Duration) Micros { return micros(at) + b.offset() }

// next returns a number that is above all earlier ones, and the common time if that is possible.
func (b *timebase) next(now time.Duration) uint64 {
	b.last = max(b.last+1, uint64(max(b.common(now), 1)))
	return b.last
}

// latest returns the time of the server whose clock is ahead of the others. The common time of another party that
// knows a majority of the same servers is not above that of a majority of them, so as a rule it is not above this.
func (b *timebase) latest(now time.Duration) uint64 {
	latest := Micros(1)
	for i := range b.samples {
		if s := &b.samples[i]; s.known {
			latest = max(latest, micros(now)+s.offset)
		}
	}
	return uint64(latest)
}

// longestExchange bounds how far a ticket is ahead of the servers' clocks. A ticket that is farther
// ahead was given before a clock was set.
const longestExchange = 3 * time.Second

// rounding is more than the errors of a ticket and of a server's clock by whole microseconds.
const rounding = 2

// passed returns when the servers' clocks certainly show more than the ticket: now or earlier if they
// do already, or if the ticket is from before a clock was set. The clock of one server shows at least
//
//	time of the server in its reply + now - received = now + offset - round trip
//
// of which passed takes the median over the servers, as the ticket does.
func (b *timebase) passed(ticket uint64, now time.Duration) time.Duration {
	least := micros(now) + b.median(func(s *sample) Micros { return s.offset - micros(s.rtt) })
	ahead := Micros(ticket) + rounding - least
	if ahead > micros(longestExchange) {
		return now
	}
	return now + time.Duration(ahead)*time.Microsecond
}

// ends returns a moment as an end that clients repeat: Lease.EndsAt and Asked.EndsAt.
func (b *timebase) ends(at time.Duration) time.Duration {
	c := b.common(at)
	if c <= 0 || c > Micros(never/time.Microsecond)-1 {
		return time.Microsecond
	}
	return time.Duration(c) * time.Microsecond
}

// moment is the reverse of ends.
func (b *timebase) moment(ends time.Duration) time.Duration {
	return max(time.Duration(micros(ends)-b.offset())*time.Microsecond, 1)
}

// created numbers the timers.
func (b *timebase) created() uint64 {
	b.timers++
	return b.timers
}

func micros(d time.Duration) Micros { return Micros(d / time.Microsecond) }

// duration returns m as a duration: at least 0, at most longest.
func (m Micros) duration() time.Duration {
	return time.Duration(min(max(m, 0), longest)) * time.Microsecond
}

// longest is more than any TTL or bound may be: what a server states beyond it is cut.
const longest = Micros(20 * 365 * 24 * time.Hour / time.Microsecond)
