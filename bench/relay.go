package main

import (
	"bufio"
	"encoding/binary"
	"net"
	"sync"
)

// Clients of the relay send frames as to the echo servers. The number of a frame says which token
// it is about. A hand-off takes five frames:
//
//	waiter -> relay   number               wants the token
//	waiter <- relay   number|mustWait      somebody has it
//	holder -> relay   number|giveBack
//	waiter <- relay   number               has the token
//	holder <- relay   number|giveBack      the token is back
const (
	giveBack = 1 << 31
	mustWait = 1 << 30
)

// relay gives each token to its waiters one after the other, in the order of their requests. That
// is the least that a fair server must do.
type relay struct {
	mu     sync.Mutex
	tokens map[uint32]*token
}

type token struct {
	given bool
	queue []waiter
}

// waiter is a request that is answered when its turn comes.
type waiter struct {
	conn   *relayConn
	answer []byte
}

// relayConn orders the frames that several goroutines write to one client. Its lock comes before
// that of relay.
type relayConn struct {
	net.Conn
	mu sync.Mutex
}

func serveRelay(l net.Listener) error {
	all := &relay{tokens: map[uint32]*token{}}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			all.serve(&relayConn{Conn: conn}) // ends when the client goes
		}()
	}
}

func (all *relay) serve(conn *relayConn) error {
	in := bufio.NewReader(conn)
	for {
		head, err := in.Peek(echoHeader)
		if err != nil {
			return err
		}
		length := int(binary.LittleEndian.Uint32(head))
		number := binary.LittleEndian.Uint32(head[8:])
		me := waiter{conn, make([]byte, binary.LittleEndian.Uint32(head[4:]))}
		putFrame(me.answer, 0, number)
		if _, err := in.Discard(length); err != nil {
			return err
		}
		if number&giveBack == 0 {
			err = all.want(number, me)
		} else {
			all.back(number &^ giveBack)
			err = me.grant()
		}
		if err != nil {
			return err
		}
	}
}

// want gives the token to the caller, or puts it into the queue and says so. It holds the lock of
// the connection meanwhile, so that the grant comes after that answer.
func (all *relay) want(number uint32, me waiter) error {
	me.conn.mu.Lock()
	defer me.conn.mu.Unlock()
	frame := me.answer
	if all.enqueue(number, me) {
		frame = make([]byte, len(me.answer))
		putFrame(frame, 0, number|mustWait)
	}
	_, err := me.conn.Write(frame)
	return err
}

// enqueue reports whether the caller must wait. If not, it has the token.
func (all *relay) enqueue(number uint32, me waiter) (waits bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	t := all.tokens[number]
	if t == nil {
		t = &token{}
		all.tokens[number] = t
	}
	waits = t.given
	t.given = true
	if waits {
		t.queue = append(t.queue, me)
	}
	return waits
}

// back gives the token to the first waiter. If a waiter is gone the token is lost with it: all
// clients of a round go together.
func (all *relay) back(number uint32) {
	all.mu.Lock()
	t := all.tokens[number]
	if t == nil || len(t.queue) == 0 {
		delete(all.tokens, number)
		all.mu.Unlock()
		return
	}
	next := t.queue[0]
	t.queue = t.queue[1:]
	all.mu.Unlock()
	_ = next.grant()
}

// grant writes the answer of the waiter.
func (w waiter) grant() error {
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	_, err := w.conn.Write(w.answer)
	return err
}
