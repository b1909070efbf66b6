package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// Serve accepts connections of peers from l, a listener without TLS, until Close, and then returns
// nil. It returns an error if l is closed by somebody else. It closes l before it returns.
func (t *Transport) Serve(l net.Listener) error {
	defer l.Close()
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.listeners[l] = struct{}{}
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		delete(t.listeners, l)
		t.mu.Unlock()
	}()
	var pauses backoff
	for {
		raw, err := l.Accept()
		switch {
		case err == nil:
			pauses = backoff{}
			t.accept(raw)
			continue
		case t.life.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		}
		// Such as too many open files: the cause may pass when connections end.
		pause := pauses.next()
		t.settings.Log.Warn("can't accept a connection of a peer", "error", err, "again_in", pause)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-t.life.Done():
			timer.Stop()
		}
	}
}

// accept begins to serve a connection. It waits while too many others are unauthenticated.
func (t *Transport) accept(raw net.Conn) {
	arrival := t.arrivals.Enter(raw, t.life.Done())
	if arrival == nil {
		raw.Close()
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		arrival.Leave()
		raw.Close()
		return
	}
	t.running.Go(func() {
		defer raw.Close()
		defer arrival.Leave()
		defer context.AfterFunc(t.life, func() { raw.Close() })()
		p, c, err := t.welcome(raw)
		if err != nil {
			linger(raw)
			return
		}
		arrival.Leave()
		t.receive(p, c)
	})
}

// welcome performs the handshake with a peer that has connected.
func (t *Transport) welcome(raw net.Conn) (*peer, *connection, error) {
	if err := raw.SetDeadline(time.Now().Add(t.bounds.handshake)); err != nil {
		return nil, nil, err
	}
	from := raw.RemoteAddr().String()
	s, err := t.secure(raw, calledNode)
	if err != nil {
		t.refusals.add(from, 0, err)
		return nil, nil, err
	}
	form, address, err := t.readOffer(s)
	var p *peer
	var c *connection
	if err == nil {
		p, c, err = t.admit(s, address)
	}
	if err != nil {
		_ = wire.WriteFrame(s, refusal(err)) // the connection ends in any case
		t.refusals.add(from, s.id, err)
		return nil, nil, err
	}
	c.Lock()
	c.Out.PutFrame(answer(form))
	c.End(false)
	t.settings.Log.Info("a peer is connected", "node", formatID(s.id), "from", from)
	return p, c, nil
}

var errSuperseded = errors.New("the peer has made a newer connection")

// admit makes a stream the connection from that peer, in place of an older one. The peer says that it
// listens at that address.
func (t *Transport) admit(s *stream, address string) (*peer, *connection, error) {
	id := s.id
	c := newConnection(s, t.settings.Silence, nil)
	t.mu.Lock()
	p := t.peers[id]
	if p == nil && len(t.peers) >= t.bounds.peers {
		t.mu.Unlock()
		return nil, nil, fmt.Errorf("node %016x has %d other peers: it takes no more", t.settings.ID, t.bounds.peers)
	}
	if p == nil {
		p = &peer{id: id}
		t.peers[id] = p
	}
	former, sender := p.incoming, p.sender
	p.incoming, p.since, p.stated = c, time.Now(), address
	t.mu.Unlock()
	if former != nil {
		former.Fail(errSuperseded)
	}
	// The answer may have changed between the handshake and this moment; CheckAllowed sees c from now on.
	if err := t.settings.allow(s.leaf); err != nil {
		t.leave(p, c)
		return nil, nil, err
	}
	if sender != nil {
		sender.tryNow() // the peer is there
	}
	return p, c, nil
}

// leave ends the connection from a peer.
func (t *Transport) leave(p *peer, c *connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.incoming == c {
		p.incoming = nil
		t.forget(p)
	}
}

// receive reads the messages of a peer until the connection ends.
func (t *Transport) receive(p *peer, c *connection) {
	in := inbox{transport: t, peer: p}
	err := c.run(t.life, func() error { return c.stream.frames(maxFrame, in.add, in.pass) })
	in.pass()
	in.end()
	t.leave(p, c)
	t.settings.Log.Info("the connection of a peer has ended", "node", formatID(p.id), "why", err)
}

// linger reads what a refused peer still sends. If it stayed unread, the peer's system could discard
// the refusal.
func linger(raw net.Conn) {
	half, ok := raw.(halfCloser)
	if ok && half.CloseWrite() == nil && raw.SetReadDeadline(time.Now().Add(limits.ArrivalTime)) == nil {
		_, _ = io.CopyN(io.Discard, raw, 4<<10)
	}
}

// A halfCloser is a connection that can close its sending side and still read, as *net.TCPConn can.
type halfCloser interface {
	CloseWrite() error
}
