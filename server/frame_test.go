package server

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/wire"
)

// begins sends the head of a frame of wire.MaxFrame bytes, and so many bytes of it.
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
		f.Requests = append(f.Requests, &wire.Request{Id: p.last, Session: session, Epoch: epoch, Claim: &wire.Claim{
			Id: i + 1, Note: strings.Repeat("n", 500), Link: strings.Repeat("l", 500),
			Targets: []*wire.Target{{Path: fmt.Sprint("bulk/", i), Mode: wire.Mode_MODE_EXCLUSIVE}},
		}})
	}
	p.last++
	f.Requests = append(f.Requests, &wire.Request{Id: p.last, Session: session, Epoch: epoch, Renew: true})
	p.send(f)
	for _, m := range f.GetRequests() {
		if a := p.answered(m.GetId()); a.GetError() != nil {
			p.t.Fatalf("request %d: %v", m.GetId(), a.GetError().Read())
		}
	}
}

// A frame that is only announced takes no room: neither that of others, nor that of its identity.
func TestAnnouncedFramesTakeNoRoom(t *testing.T) {
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

// Frames that stall when most of them has arrived take up the share of their identity alone. Its
// next frame is refused as unavailable, and when the stalled ones are given up there is room.
func TestStalledFramesTakeTheirIdentitysShareAlone(t *testing.T) {
	bounds := limits.DefaultBounds()
	bounds.FrameBytesEach = 2 << 20
	g := startBounded(t, Options{}, &bounds, "alice", "bob")
	for range 2 {
		g.as("alice").begins(wire.MaxFrame - 1)
	}
	refused := 0
	for refused == 0 { // as soon as the server has read what was sent
		p := g.as("alice")
		p.begins(ownFrame + 1)
		p.net.SetReadDeadline(time.Now().Add(2 * limits.RoomTime))
		if _, err := p.frame(); err == nil && p.refused != nil {
			refused++
			if !errors.Is(p.refused, lockkeeper.ErrUnavailable) {
				t.Errorf("refused with %v", p.refused)
			}
		}
	}
	g.as("bob").bulk("b")
	if p := g.as("alice"); p.attach("small") == 0 { // small frames need no room
		t.Error("no epoch")
	}
}
