package server

import (
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// A frame with too many elements is refused before it is decoded, and one with exactly the bound works.
func TestElementsAreBounded(t *testing.T) {
	_, address := startMemory(t)
	frame := func(p *peer, n int) *wire.ClientFrame {
		f := new(wire.ClientFrame)
		for range n {
			f.Requests = append(f.Requests, p.numbered(&wire.Request{About: true})...)
		}
		return f
	}
	full := greeted(t, address)
	f := frame(full, wire.MaxElements)
	full.send(f)
	for _, m := range f.GetRequests() {
		if m := full.answered(m.GetCall()); m.GetError() != nil {
			t.Fatal(m.GetError().Read())
		}
	}
	p := greeted(t, address)
	p.send(frame(p, wire.MaxElements+1))
	p.over(lockkeeper.ErrInvalid)
}
