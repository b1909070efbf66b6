package main

import (
	"bufio"
	"encoding/binary"
	"net"
	"sync"
)

// Clients of the relay send frames as to the echo servers. The number of a frame
// says which token it is about, and whether it is wanted or given back.
const giveBack = 1 << 31

// relay gives each token to those who want it, one after the other, in the order
// of their requests. That is the least that a fair server must do.
type relay struct {
	mu     sync.Mutex
	tokens map[uint32]*token
}

type token struct {
	given bool
	line  []waiter // its waiters
}

// waiter is a request that is answered when its turn comes.
type waiter struct {
	conn   net.Conn
	answer []byte
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
			all.serve(conn) // ends when the client goes
		}()
	}
}

func (all *relay) serve(conn net.Conn) error {
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
			all.want(number, me)
			continue
		}
		all.back(number &^ giveBack)
		if _, err := conn.Write(me.answer); err != nil {
			return err
		}
	}
}

// want gives the token to me, or puts me into its line.
func (all *relay) want(number uint32, me waiter) {
	all.mu.Lock()
	t := all.tokens[number]
	if t == nil {
		t = &token{}
		all.tokens[number] = t
	}
	waits := t.given
	t.given = true
	if waits {
		t.line = append(t.line, me)
	}
	all.mu.Unlock()
	if !waits {
		me.turn()
	}
}

// back gives the token to the next in line, or keeps it.
func (all *relay) back(number uint32) {
	all.mu.Lock()
	t := all.tokens[number]
	if t == nil || len(t.line) == 0 {
		delete(all.tokens, number)
		all.mu.Unlock()
		return
	}
	next := t.line[0]
	t.line = t.line[1:]
	all.mu.Unlock()
	next.turn()
}

// turn tells a waiter that it has the token. If that one is gone the token is
// lost with it: all clients of a round go together.
func (w waiter) turn() { w.conn.Write(w.answer) }
