package main

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
)

// Clients of a ring join it by its number and its size. When all are there the
// server sends a token of one byte to the first; whoever has it sends it back, and
// the server hands it to the next, whether that one wants it or not.
const ringHello = 8

type rings struct {
	mu   sync.Mutex
	open map[uint32]*ring
}

type ring struct {
	conns []net.Conn
	full  chan struct{} // closed when all are there
}

func serveRing(l net.Listener) error {
	all := &rings{open: map[uint32]*ring{}}
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

// serve hands the token from this client to the next, until one of them is gone.
func (all *rings) serve(conn net.Conn) error {
	var hello [ringHello]byte
	if _, err := io.ReadFull(conn, hello[:]); err != nil {
		return err
	}
	r, at := all.join(conn, binary.LittleEndian.Uint32(hello[:]), int(binary.LittleEndian.Uint32(hello[4:])))
	<-r.full
	var token [1]byte
	if at == 0 {
		if _, err := conn.Write(token[:]); err != nil {
			return err
		}
	}
	next := r.conns[(at+1)%len(r.conns)]
	for {
		if _, err := conn.Read(token[:]); err != nil {
			return err
		}
		if _, err := next.Write(token[:]); err != nil {
			return err
		}
	}
}

func (all *rings) join(conn net.Conn, number uint32, size int) (*ring, int) {
	all.mu.Lock()
	defer all.mu.Unlock()
	r := all.open[number]
	if r == nil {
		r = &ring{full: make(chan struct{})}
		all.open[number] = r
	}
	r.conns = append(r.conns, conn)
	if len(r.conns) == size {
		close(r.full)
		delete(all.open, number)
	}
	return r, len(r.conns) - 1
}
