package testdb

import (
	"errors"
	"net"
	"sync"
	"testing"
)

// A Proxy stands between clients and a server. It passes on what they send, and on demand it loses
// something: a connection at an exact request, in one of the ways that a client can't distinguish
// (CutBefore, CutAfter, CutWithin, HoldBack), all connections (Break), or everything from now on
// (Swallow).
//
// A request is what the server answers as one: a command of MySQL's protocol; in PostgreSQL's a
// Query, or all messages up to the next Sync. Messages are smaller: in PostgreSQL's protocol Query,
// Parse, Bind, Describe, Execute, Close, Flush and Sync; in MySQL's they are the requests. Both are
// counted over all connections. The start and the end of a connection, and messages without an
// answer, are no requests.
//
// Any goroutine may call its methods at any time. Connections are not encrypted.
type Proxy struct {
	server   *Server
	listener net.Listener
	work     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	links    map[*link]bool
	requests int // since plan was set
	messages int
	plan     plan
	at       int           // number of the request or message that the plan applies to
	struck   string        // its text
	swallow  chan struct{} // nil unless it swallows: closed when that ends
	held     *link         // the link whose last request HoldBack keeps
	do       func()        // of Call
}

// plan is what to do with a request, or with one message.
type plan int

const (
	pass plan = iota
	cutBefore
	cutAfter
	cutWithin
	holdBack
	call
)

// NewProxy starts a proxy before a server. It ends with the test, and passes everything on at
// first.
func NewProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{server: s, listener: l, links: map[*link]bool{}}
	p.work.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr is where the proxy listens, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL is the URL of a database of the server through the proxy.
func (p *Proxy) URL(database string) string { return p.server.urlAt(p.Addr(), database) }

// Database creates an empty database for one test, as the Database of the server, and returns its
// URL through the proxy.
func (p *Proxy) Database(t testing.TB) string {
	t.Helper()
	return p.URL(p.server.newDatabase(t))
}

// CutBefore loses the nth request from now (n from 1). The proxy closes its side to the server, and
// when the server has closed too, the client's side. A PostgreSQL has rolled back by then; a
// MariaDB closes first, and may keep the locks of a transaction for a moment. As with all plans, it
// counts for one request, and replaces the plan before.
func (p *Proxy) CutBefore(n int) { p.set(cutBefore, n) }

// CutAfter passes on the nth request from now, and loses the answer: when the server has sent all
// of it and closed its side, the proxy closes the client's. So the server has done everything when
// the client notices.
func (p *Proxy) CutAfter(n int) { p.set(cutAfter, n) }

// CutWithin loses the nth message from now, and all answers to the messages of its request before
// it, which arrive: of BEGIN, UPDATE and COMMIT in one request perhaps the first two. When the
// server has closed its side, the proxy closes the client's.
func (p *Proxy) CutWithin(n int) { p.set(cutWithin, n) }

// HoldBack keeps the nth request from now, closes the client's side at once, and leaves the
// server's open, with its transaction and locks. Deliver passes the request on later, whatever has
// happened on other connections meanwhile.
func (p *Proxy) HoldBack(n int) { p.set(holdBack, n) }

// Deliver passes on the request that HoldBack keeps, and returns when the server has done it and
// closed its side. It reports whether there was one.
func (p *Proxy) Deliver() bool {
	p.mu.Lock()
	l := p.held
	p.held = nil
	p.mu.Unlock()
	if l == nil {
		return false
	}
	l.flush() // if the server is gone, so is the link
	<-l.ended
	return true
}

// Call calls do when the server has answered the nth request from now, before the client gets the
// end of the answer: do may kill or stop the client.
func (p *Proxy) Call(n int, do func()) {
	p.set(call, n)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.do = do
}

func (p *Proxy) called() {
	p.mu.Lock()
	do := p.do
	p.mu.Unlock()
	do()
}

func (p *Proxy) set(what plan, at int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan, p.at, p.struck = what, at, ""
	p.requests, p.messages = 0, 0
}

// Requests is the number of requests since the last call of CutBefore, CutAfter, CutWithin,
// HoldBack or Pass, including one that was cut.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// Messages is the number of messages since then, including one that was cut.
func (p *Proxy) Messages() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.messages
}

// Struck is the text of the request that the last plan applied to, up to the message that was cut:
// its SQL, or the names of its messages. It is empty while no such request came: so a test that
// goes through all requests of something finds the end.
func (p *Proxy) Struck() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.struck
}

// Break closes both sides of all connections at once. New ones are accepted.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.breakAll()
}

func (p *Proxy) breakAll() {
	for l := range p.links {
		l.close()
	}
}

// Swallow loses everything from now on, both ways and on new connections too, and closes none, as a
// broken network does.
func (p *Proxy) Swallow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.swallow == nil && !p.closed {
		p.swallow = make(chan struct{})
	}
}

// Pass removes the plan, and passes everything on new connections. It closes the connections that
// may have lost something.
func (p *Proxy) Pass() {
	p.set(pass, 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.swallow != nil {
		close(p.swallow)
		p.swallow = nil
		p.breakAll()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // it is closed
		}
		p.mu.Lock()
		if p.closed {
			client.Close()
		} else {
			l := newLink(p, client)
			p.links[l] = true
			p.work.Go(func() { l.run(); p.forget(l) })
		}
		p.mu.Unlock()
	}
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *Proxy) close() {
	p.Pass()
	p.mu.Lock()
	p.closed = true
	err := p.listener.Close()
	p.breakAll()
	p.mu.Unlock()
	if err == nil || errors.Is(err, net.ErrClosed) {
		p.work.Wait()
	}
}

// take counts a message, and returns the plan for it or for the request that it ends. words is the
// text of the request.
func (p *Proxy) take(m message, words string) plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.messages++
	if m.ends {
		p.requests++
	}
	hit := m.ends && p.requests == p.at
	if p.plan == cutWithin {
		hit = p.messages == p.at
	}
	if p.plan == pass || !hit {
		return pass
	}
	what := p.plan
	p.plan, p.struck = pass, words
	return what
}

// hold keeps a link for Deliver.
func (p *Proxy) hold(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = l
}

// swallowing returns the channel to wait for before anything is sent; nil if it does not swallow.
func (p *Proxy) swallowing() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.swallow
}
