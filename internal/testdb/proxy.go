package testdb

import (
	"errors"
	"net"
	"sync"
	"testing"
)

// A Proxy stands between clients and a server and passes on what they send, until it
// is told to lose something: a connection at an exact request, in one of the ways that
// a client can't tell apart (CutBefore, CutAfter, CutWithin, HoldBack), all connections
// (Break), or whatever is sent from now on (Swallow).
//
// A request is what the server answers as one: in MySQL's protocol a command; in
// PostgreSQL's a Query, or all messages to the next Sync. Messages are the single ones:
// in PostgreSQL's protocol Query, Parse, Bind, Describe, Execute, Close, Flush and Sync,
// in MySQL's the same as requests. Both are counted on all connections together. The
// start and the end of a connection, and what is never answered, are no requests.
//
// Its methods may be called at any time by any goroutine. Connections are not
// encrypted.
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
	at       int           // the number of the request or message that the plan is for
	struck   string        // what that was
	swallow  chan struct{} // if what is sent is swallowed: closed when that ends
	held     *link         // whose last request is kept back
	do       func()        // of Call
}

// plan is what becomes of a request, or of one message.
type plan int

const (
	pass plan = iota
	cutBefore
	cutAfter
	cutWithin
	holdBack
	call
)

// NewProxy starts a proxy before a server, which ends with the test. It passes all on
// at first.
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

// URL is that of a database of the server by way of the proxy.
func (p *Proxy) URL(database string) string { return p.server.urlAt(p.Addr(), database) }

// Database makes a new empty database for one test, as the server's Database, and
// returns its URL by way of the proxy.
func (p *Proxy) Database(t testing.TB) string {
	t.Helper()
	return p.URL(p.server.newDatabase(t))
}

// CutBefore has the nth request from now never arrive (n from 1). The server is told
// that the client is gone, and when it has closed its side the client's is closed too.
// A PostgreSQL has rolled back by then; a MariaDB closes first, and may hold the locks
// of a transaction a moment longer. As with all plans, it is for one request only, and
// replaces what was planned before.
func (p *Proxy) CutBefore(n int) { p.set(cutBefore, n) }

// CutAfter lets the nth request from now arrive, and loses the answer: when the server
// has given it whole, and has closed its side, the client's is closed. So the server
// has done it all when the client learns of that.
func (p *Proxy) CutAfter(n int) { p.set(cutAfter, n) }

// CutWithin has the nth message from now never arrive, and loses all answers to what
// of its request came before it, which arrives: of BEGIN, UPDATE and COMMIT in one
// request perhaps the first two. The server does what it can with that, and when it
// has closed its side the client's is closed.
func (p *Proxy) CutWithin(n int) { p.set(cutWithin, n) }

// HoldBack keeps the nth request from now back, closes the client's side at once, and
// leaves the server's open, with the transaction that it may be in and the locks of
// that. Deliver lets the request arrive, late, whatever came by other ways meanwhile.
func (p *Proxy) HoldBack(n int) { p.set(holdBack, n) }

// Deliver lets the request arrive that was held back, and returns when the server has
// done it and closed its side. It reports whether there was one.
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

// Call has do called when the server has answered the nth request from now, before the
// client gets the end of the answer: do may kill or stop the client.
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

// Requests is how many requests came since the last call of CutBefore, CutAfter,
// CutWithin, HoldBack or Pass, with one that was cut.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// Messages is how many messages came since then, with one that was cut.
func (p *Proxy) Messages() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.messages
}

// Struck is what was in the request that the last plan was for, to the message that was
// cut: its SQL if that is in it, or the names of the messages. It is empty if no such
// request came yet, which is how a test that goes through all requests of something
// finds that there are no more.
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

// Swallow loses whatever is sent from now on, either way and on new connections too,
// and closes none, as a network does that is gone: nobody is told anything.
func (p *Proxy) Swallow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.swallow == nil && !p.closed {
		p.swallow = make(chan struct{})
	}
}

// Pass forgets what was planned, and lets everything pass on new connections. It closes
// those of which something was swallowed, or may have been.
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

// take counts a message and says what becomes of it, or of the request that it ends.
// words are those of the request.
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

// swallowing returns what to wait for before anybody is told anything, or nil.
func (p *Proxy) swallowing() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.swallow
}
