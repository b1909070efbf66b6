package limits

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// ArrivalTime is how long a connection may keep its place before its client has proved who it is,
// while others wait for that place.
const ArrivalTime = time.Second

// How many connections at a time a server keeps whose client has not proved who it is.
const (
	MostArrivals     = 512
	MostHTTPArrivals = 1024
)

// Arrivals bounds the connections whose client has not proved who it is. When they take all
// places and another one comes, the address with the most of them loses its oldest one. It is
// safe for concurrent use.
type Arrivals struct {
	most int

	mu   sync.Mutex
	all  []*Arrival    // in the order in which they came
	room chan struct{} // filled when one has left
}

// An Arrival is one connection whose client has not proved who it is.
type Arrival struct {
	arrivals *Arrivals
	net      net.Conn
	address  netip.Addr // or the network, for IPv6
	since    time.Time  // it came, or began its latest request
}

// NewArrivals returns room for so many.
func NewArrivals(most int) *Arrivals { return &Arrivals{most: most, room: make(chan struct{}, 1)} }

// Enter gives the connection a place. Where there is none, it waits until the oldest one of the
// address with the most has had ArrivalTime, and closes that one. It returns nil if gone is
// closed.
func (as *Arrivals) Enter(nc net.Conn, gone <-chan struct{}) *Arrival {
	mine := &Arrival{arrivals: as, net: nc, address: network(nc.RemoteAddr())}
	for {
		as.mu.Lock()
		if len(as.all) < as.most {
			mine.since = time.Now()
			as.all = append(as.all, mine)
			as.mu.Unlock()
			return mine
		}
		last := as.evictable()
		wait := time.Until(last.since.Add(ArrivalTime))
		as.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-as.room:
		case <-gone:
			timer.Stop()
			return nil
		case <-timer.C:
			if last.leave() {
				HangUp(last.net)
			}
		}
		timer.Stop()
	}
}

// evictable is the oldest arrival of the address with the most. as.mu is held.
func (as *Arrivals) evictable() *Arrival {
	of := make(map[netip.Addr]int)
	for _, a := range as.all {
		of[a.address]++
	}
	var oldest *Arrival
	for _, a := range as.all {
		switch {
		case oldest == nil, of[a.address] > of[oldest.address]:
			oldest = a
		case a.address == oldest.address && a.since.Before(oldest.since):
			oldest = a
		}
	}
	return oldest
}

// Request notes that the client has begun a request: it has ArrivalTime from now on.
func (a *Arrival) Request() {
	a.arrivals.mu.Lock()
	defer a.arrivals.mu.Unlock()
	a.since = time.Now()
}

// Leave gives the place to somebody else: the client has proved who it is, or is gone.
func (a *Arrival) Leave() {
	a.leave()
}

// leave reports whether a still had its place.
func (a *Arrival) leave() bool {
	as := a.arrivals
	as.mu.Lock()
	defer as.mu.Unlock()
	for i, other := range as.all {
		if other == a {
			as.all = append(as.all[:i], as.all[i+1:]...)
			as.all[:len(as.all)+1][len(as.all)] = nil
			select {
			case as.room <- struct{}{}:
			default:
			}
			return true
		}
	}
	return false
}

// network is what counts as one address: of IPv6 a whole /64, since one host may use all of it.
func network(from net.Addr) netip.Addr {
	tcp, ok := from.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return ip
}

// HangUp closes a connection without a word, so that it never waits for the client.
func HangUp(nc net.Conn) {
	if secure, ok := nc.(interface{ NetConn() net.Conn }); ok { // TLS would say good-bye
		nc = secure.NetConn()
	}
	nc.Close()
}
