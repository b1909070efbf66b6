package server

import (
	"bufio"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// patience bounds all waits. Only a test that hangs takes as long.
const patience = 30 * time.Second

// start serves e until the test ends.
func start(t *testing.T, e lockkeeper.Engine, o Options) (*Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(e, o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s, l.Addr().String()
}

func startMemory(t *testing.T) (*Server, string) {
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	return start(t, e, Options{})
}

// A peer is a client that sends and receives single frames.
type peer struct {
	t       *testing.T
	net     net.Conn
	in      *bufio.Reader
	last    uint64
	replies map[uint64]*wire.Reply // received, and not yet returned by answered
	changed []*wire.Status
	missed  bool
	drained string
	refused error
}

func connect(t *testing.T, address string) *peer {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(patience))
	return &peer{t: t, net: nc, in: bufio.NewReader(nc), replies: map[uint64]*wire.Reply{}}
}

// greeted returns a peer after the handshake.
func greeted(t *testing.T, address string) *peer {
	t.Helper()
	p := connect(t, address)
	p.send(&wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol}})
	f, err := p.frame()
	if err != nil || f.GetWelcome().GetProtocol() != wire.Protocol {
		t.Fatalf("no welcome: %v %v", f, err)
	}
	return p
}

func (p *peer) send(f *wire.ClientFrame) {
	p.t.Helper()
	if err := wire.WriteFrame(p.net, f); err != nil {
		p.t.Fatal(err)
	}
}

// frame reads one frame, and keeps its replies and hints.
func (p *peer) frame() (*wire.ServerFrame, error) {
	length, err := wire.ReadLength(p.in, wire.MaxFrame)
	if err != nil {
		return nil, err
	}
	message, err := wire.ReadMessage(p.in, length, nil, nil)
	if err != nil {
		return nil, err
	}
	f := new(wire.ServerFrame)
	if err := f.UnmarshalVT(message); err != nil {
		return nil, err
	}
	for _, m := range f.GetReplies() {
		p.replies[m.GetCall()] = m
	}
	p.changed = append(p.changed, f.GetChanged()...)
	p.missed = p.missed || f.GetMissed()
	if f.GetDraining() != "" {
		p.drained = f.GetDraining()
	}
	if f.GetRefused() != nil {
		p.refused = f.GetRefused().Read()
	}
	return f, nil
}

// until reads frames until so returns true.
func (p *peer) until(what string, so func() bool) {
	p.t.Helper()
	for !so() {
		if _, err := p.frame(); err != nil {
			p.t.Fatalf("%s: %v", what, err)
		}
	}
}

// ask sends a request and returns its number.
func (p *peer) ask(m *wire.Request) uint64 {
	p.t.Helper()
	p.last++
	m.Call = p.last
	p.send(&wire.ClientFrame{Requests: []*wire.Request{m}})
	return m.Call
}

// answered waits for the answer to a request.
func (p *peer) answered(id uint64) *wire.Reply {
	p.t.Helper()
	p.until("waiting for an answer", func() bool { return p.replies[id] != nil })
	m := p.replies[id]
	delete(p.replies, id)
	return m
}

// attach opens a session, and returns its epoch.
func (p *peer) attach(session string, named ...uint64) uint64 {
	p.t.Helper()
	m := p.answered(p.ask(&wire.Request{Attach: &wire.Session{Id: session, Ttl: int64(time.Minute), Named: named}}))
	if m.GetError() != nil {
		p.t.Fatalf("attach: %v", m.GetError().Read())
	}
	return m.GetLease().GetEpoch()
}

// claim makes a waiting, exclusive claim, and returns the answer.
func (p *peer) claim(session string, epoch, id uint64, path string) *wire.Reply {
	p.t.Helper()
	return p.answered(p.ask(&wire.Request{Key: &wire.Key{Session: session, Epoch: epoch}, Claim: &wire.Want{
		Id: id, Targets: []*wire.Target{{Path: path, Mode: wire.Mode_MODE_EXCLUSIVE}}, Wait: -1,
	}}))
}

// held makes a claim, and fails the test unless it is granted.
func (p *peer) held(session string, epoch, id uint64, path string) {
	p.t.Helper()
	if m := p.claim(session, epoch, id, path); m.GetStatus().GetState() != wire.State_STATE_HELD {
		p.t.Fatalf("%s is not granted: %v", path, m)
	}
}

// waiting makes a claim, and fails the test unless it waits.
func (p *peer) waiting(session string, epoch, id uint64, path string) {
	p.t.Helper()
	if m := p.claim(session, epoch, id, path); m.GetStatus().GetState() != wire.State_STATE_WAITING {
		p.t.Fatalf("%s does not wait: %v", path, m)
	}
}

// release ends a claim.
func (p *peer) release(session string, epoch, id uint64) {
	p.t.Helper()
	m := p.answered(p.ask(&wire.Request{
		Key: &wire.Key{Session: session, Epoch: epoch},
		End: &wire.Ending{Kind: wire.EndingKind_ENDING_KIND_RELEASE, Id: id},
	}))
	if m.GetError() != nil {
		p.t.Fatalf("release: %v", m.GetError().Read())
	}
}

// granted waits for the hint that a claim is held.
func (p *peer) granted(session string, id uint64) {
	p.t.Helper()
	p.until("waiting for a grant", func() bool {
		for _, m := range p.changed {
			if m.GetSession() == session && m.GetId() == id && m.GetState() == wire.State_STATE_HELD {
				return true
			}
		}
		return false
	})
}

// over reads until the connection ends, and fails the test unless it was refused with want.
func (p *peer) over(want error) {
	p.t.Helper()
	for {
		if _, err := p.frame(); err != nil {
			break
		}
	}
	if !errors.Is(p.refused, want) {
		p.t.Errorf("the connection ended with %v, want %v", p.refused, want)
	}
}
