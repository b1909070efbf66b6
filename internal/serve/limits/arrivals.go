package limits

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// ArrivalTime is how long an unauthenticated connection keeps its slot while other connections
// wait for one.
const ArrivalTime = time.Second

// The most unauthenticated connections that a server keeps at a time.
const (
	MostArrivals     = 512
	MostHTTPArrivals = 1024
)

// Arrivals limits unauthenticated connections. If they take all slots when another connection
// arrives, the address with the most of them loses its oldest one. Arrivals is safe for concurrent
// use.
type Arrivals struct {
	most int

	mu   sync.Mutex
	all  []*Arrival    // in the order of their arrival
	room chan struct{} // filled when an arrival leaves
}

// An Arrival is one unauthenticated connection.
type Arrival struct {
	arrivals *Arrivals
	net      net.Conn
	address  netip.Addr // or the network, for IPv6
	since    time.Time  // when it arrived, or began its latest request
}

// NewArrivals returns an Arrivals with that many slots.
func NewArrivals(most int) *Arrivals { return &Arrivals{most: most, room: make(chan struct{}, 1)} }

// Enter gives the connection a slot. If all slots are taken, Enter waits until the oldest
// connection of the address with the most has had ArrivalTime, and closes that connection. It
// returns nil if gone is closed.
func (as *Arrivals) Enter(nc net.Conn, gone <-chan struct{}) *Arrival {
	mine := &Arrival{arrivals: as, net: nc, address: network(nc.RemoteAddr())}
	for {
		as.mu.Lock()
		if len(as.all) < as.most {
			mine.since = time.Now()
			as.all = append(as.all, mine)
			if len(as.all) < as.most {
				as.announceRoom() // two may have left at once, and sent one signal
			}
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

// evictable returns the oldest arrival of the address with the most. The caller holds as.mu.
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

// Request restarts ArrivalTime, because the client has begun a request.
func (a *Arrival) Request() {
	a.arrivals.mu.Lock()
	defer a.arrivals.mu.Unlock()
	a.since = time.Now()
}

// Leave frees the slot: the client has authenticated or is gone.
func (a *Arrival) Leave() {
	a.leave()
}

// leave frees the slot, and reports whether a still had it.
func (a *Arrival) leave() bool {
	as := a.arrivals
	as.mu.Lock()
	defer as.mu.Unlock()
	for i, other := range as.all {
		if other == a {
			as.all = append(as.all[:i], as.all[i+1:]...)
			as.all[:len(as.all)+1][len(as.all)] = nil
			as.announceRoom()
			return true
		}
	}
	return false
}

// announceRoom wakes one waiting call of Enter.
func (as *Arrivals) announceRoom() {
	select {
	case as.room <- struct{}{}:
	default:
	}
}

// network returns the address that Arrivals counts for a connection: for IPv6 that of its /64,
// because one host may use all of it.
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

// HangUp closes a connection without sending anything, so that it never waits for the client.
func HangUp(nc net.Conn) {
	if secure, ok := nc.(wrapper); ok { // TLS would send an alert
		nc = secure.NetConn()
	}
	nc.Close()
}

// wrapper is a connection over another one, as *tls.Conn is.
type wrapper interface {
	NetConn() net.Conn
}
