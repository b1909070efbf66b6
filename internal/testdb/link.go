package testdb

import (
	"bufio"
	"io"
	"net"
	"sync"
	"time"
)

// drainBound bounds how long a server takes for its last request, and to close its side.
const drainBound = time.Minute

// message is one message of a client, with what must stay together with it.
type message struct {
	bytes    []byte
	words    string
	counts   bool // it is a request or part of one
	ends     bool // it ends a request
	answered bool // the server's answer has an end of its own: to a request, or the start
	urgent   bool // it can't wait for the end of its request
}

// protocol splits the bytes of one connection into messages.
type protocol interface {
	// request reads one message of the client.
	request(r *bufio.Reader) (message, error)
	// answer reads some bytes of the server. ends: they end an answer.
	answer(r *bufio.Reader) (bytes []byte, ends bool, err error)
	// serial reports whether a client waits for each answer before its next request. Then answer
	// need not find ends.
	serial() bool
}

// A link is one connection of a client, and its connection to the server.
type link struct {
	proxy    *Proxy
	protocol protocol
	client   net.Conn
	pending  []byte // of a request that has not ended; up's, until it is held back
	ended    chan struct{}

	mu       sync.Mutex
	server   net.Conn // set once, before up and down
	shut     bool
	sent     int // what the server was sent that it answers
	dropFrom int // the answer from which on all are dropped, if dropping
	dropping bool
	callFrom int // likewise the answer at which Call calls, if calling
	calling  bool
}

func newLink(p *Proxy, client net.Conn) *link {
	l := &link{proxy: p, client: client, ended: make(chan struct{})}
	if p.server.program.scheme == "mysql" {
		l.protocol = mysqlProtocol{}
	} else {
		l.protocol = &postgresProtocol{client: client}
	}
	return l
}

// close ends both sides, and with that the goroutines of the link.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = true
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
}

func (l *link) run() {
	defer close(l.ended)
	defer l.close()
	if l.lost() {
		return
	}
	server, err := net.Dial("tcp", l.proxy.server.Addr())
	if err != nil {
		return // as if no server listened
	}
	l.mu.Lock()
	l.server = server
	if l.shut {
		server.Close()
	}
	l.mu.Unlock()
	var up sync.WaitGroup
	up.Go(l.up)
	l.down()
	l.lost() // the end of the server's side may be swallowed too
	l.close()
	up.Wait()
}

// lost waits until swallowing ends, and reports whether anything was swallowed.
func (l *link) lost() bool {
	end := l.proxy.swallowing()
	if end == nil {
		return false
	}
	<-end
	return true
}

// up passes on what the client sends, whole requests at a time.
func (l *link) up() {
	in := bufio.NewReader(l.client)
	words := ""
	for {
		m, err := l.protocol.request(in)
		if l.proxy.swallowing() != nil {
			if err != nil {
				l.lost()
				return
			}
			continue
		}
		if err != nil {
			l.leave() // the client is gone: close the server's side
			return
		}
		what := pass
		if words != "" && m.words != "" {
			words += "; "
		}
		words += m.words
		if m.counts {
			what = l.proxy.take(m, words)
		}
		if !l.forward(m, what) {
			return
		}
		if m.ends {
			words = ""
		}
	}
}

// forward passes a message on, keeps it for the end of its request, or applies the plan. It reports
// whether the connection goes on.
func (l *link) forward(m message, what plan) bool {
	l.mu.Lock()
	if what == cutAfter || what == cutWithin || what == holdBack {
		l.dropping, l.dropFrom = true, l.sent
	}
	if what == call {
		l.calling, l.callFrom = true, l.sent
	}
	if m.answered {
		l.sent++
	}
	l.mu.Unlock()
	if what != cutWithin {
		l.pending = append(l.pending, m.bytes...)
	}
	switch what {
	case cutBefore:
		l.leave()
		return false
	case cutAfter:
		l.flush() // down waits for the answer
		return false
	case cutWithin:
		l.flush()
		l.leave()
		return false
	case holdBack:
		l.proxy.hold(l)
		l.client.Close()
		return false
	}
	if m.ends || m.urgent || !m.counts {
		return l.flush() == nil
	}
	return true
}

// flush sends the pending messages to the server.
func (l *link) flush() error {
	_, err := l.server.Write(l.pending)
	l.pending = nil
	return err
}

// leave closes the sending side to the server. down ends with what the server does then.
func (l *link) leave() {
	l.server.SetReadDeadline(time.Now().Add(drainBound))
	l.server.(*net.TCPConn).CloseWrite()
}

// down passes on the answers of the server, until the server closes its side.
func (l *link) down() {
	in := bufio.NewReader(l.server)
	answered := 0
	for {
		bytes, ends, err := l.protocol.answer(in)
		if err != nil {
			return
		}
		if l.proxy.swallowing() != nil {
			continue
		}
		l.mu.Lock()
		drop := l.dropping && (l.protocol.serial() || answered >= l.dropFrom)
		calls := l.calling && ends && (l.protocol.serial() || answered >= l.callFrom)
		l.calling = l.calling && !calls
		l.mu.Unlock()
		if calls {
			l.proxy.called()
		}
		if drop && ends {
			l.leave() // that was the answer
		}
		if ends {
			answered++
		}
		if !drop {
			l.client.Write(bytes) // if the client is gone, read on until the server ends
		}
	}
}

// readFull reads n more bytes after some.
func readFull(r io.Reader, after []byte, n int) ([]byte, error) {
	all := append(after, make([]byte, n)...)
	_, err := io.ReadFull(r, all[len(after):])
	return all, err
}
