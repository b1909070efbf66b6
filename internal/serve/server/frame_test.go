package server

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// begins sends the length of a frame of wire.MaxFrame bytes, and that many bytes of the frame.
func (p *peer) begins(bytes int) {
	p.t.Helper()
	if _, err := p.net.Write(append(binary.AppendUvarint(nil, wire.MaxFrame), make([]byte, bytes)...)); err != nil {
		p.t.Fatal(err)
	}
}

// bulk sends a hundred claims and a renewal in one frame of more than 64 KiB, and waits for all
// answers.
func (p *peer) bulk(session string) {
	p.t.Helper()
	epoch := p.attach(session)
	f := &wire.ClientFrame{}
	for i := range uint64(100) {
		p.last++
		f.Requests = append(f.Requests, &wire.Request{Call: p.last, Key: &wire.Key{Session: session, Epoch: epoch},
			Claim: &wire.Want{
				Id: i + 1, Note: strings.Repeat("n", 500), Link: strings.Repeat("l", 500),
				Targets: []*wire.Target{{Path: fmt.Sprint("bulk/", i), Mode: wire.Mode_MODE_EXCLUSIVE}},
			}})
	}
	p.last++
	f.Requests = append(f.Requests, &wire.Request{
		Call:  p.last,
		Key:   &wire.Key{Session: session, Epoch: epoch},
		Renew: true,
	})
	p.send(f)
	for _, m := range f.GetRequests() {
		if a := p.answered(m.GetCall()); a.GetError() != nil {
			p.t.Fatalf("request %d: %v", m.GetCall(), a.GetError().Read())
		}
	}
}

// A frame that is only announced is charged neither to its identity nor to others.
func TestAnnouncedFramesAreNotCharged(t *testing.T) {
	g := startGuarded(t, Options{}, "alice", "bob")
	var announcers []*peer
	for range 2 * limits.DefaultBounds().FrameBytes / wire.MaxFrame {
		p := g.as("alice")
		p.begins(ownFrame - 1)
		announcers = append(announcers, p)
	}
	g.as("bob").bulk("b")
	g.as("alice").bulk("a")
	if n := g.gate.Ledger().Used(limits.Connections); n != len(announcers)+2 {
		t.Errorf("%d connections are left, want %d and two", n, len(announcers))
	}
}

// When the frames of an identity reach its bound, its next large frame is refused as unavailable.
// Its small frames, and the frames of other identities, still work.
func TestFramesAreChargedToTheirIdentity(t *testing.T) {
	bounds := limits.DefaultBounds()
	g := startBounded(t, Options{}, &bounds, "alice", "bob")
	alice := g.gate.Ledger().Identity("alice")
	if err := alice.TakeRoom(t.Context(), bounds.FrameBytesEach); err != nil {
		t.Fatal(err)
	}
	late := g.as("alice")
	late.begins(ownFrame + 1)
	g.as("bob").bulk("b")
	g.as("alice").attach("small")
	late.over(lockkeeper.ErrUnavailable)
	alice.GiveRoom(bounds.FrameBytesEach)
	g.as("alice").bulk("a")
}

// A small frame with very many elements is charged for their size once they are decoded.
func TestElementsOfSmallFrameAreCharged(t *testing.T) {
	bounds := limits.DefaultBounds()
	bounds.FrameBytesEach = 1000 * elementRoom
	g := startBounded(t, Options{}, &bounds, "alice")
	credits := func(n int) *wire.ClientFrame {
		return &wire.ClientFrame{Flows: slices.Repeat([]*wire.Flow{{Call: 1}}, n)}
	}
	fits, tooMany := g.as("alice"), g.as("alice")
	fits.send(credits(1000))
	fits.attach("s")
	tooMany.send(credits(1001))
	tooMany.over(lockkeeper.ErrUnavailable)
}

// A first frame with the most elements that fit is valid.
func TestHelloWithManyElements(t *testing.T) {
	_, address := startMemory(t)
	p := connect(t, address)
	f := &wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol}}
	for range 1000 {
		f.Requests = append(f.Requests, &wire.Request{})
	}
	p.send(f)
	if f, err := p.frame(); err != nil || f.GetWelcome() == nil {
		t.Errorf("%v %v", f, err)
	}
}
