package main

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// ourSizes are the lengths of the frames that our own server and its clients
// exchange for one pair, each travelling by itself.
func ourSizes() sizes {
	const (
		session = "bench-001-00"
		number  = 100_000
		call    = 1000<<20 | 3 // as engine/remote numbers calls
	)
	id := uint64(number)
	want := wantOf(id, pathsOf(1, 1)[0])
	release := lockkeeper.Ending{Kind: lockkeeper.Release, ID: id}
	status := lockkeeper.Status{
		Ref: lockkeeper.Ref{Session: session, ID: id}, Change: number, State: lockkeeper.Held, Fence: number, Ticket: number,
		Grants: []lockkeeper.Grant{{Target: want.Targets[0]}}, Left: lockkeeper.Forever, Age: time.Microsecond,
	}
	request := func(m *wire.Request) int {
		var o wire.Outbox
		m.Call, m.Handle, m.LowestOpen = call, wire.NewHandle(0, 1), id
		o.PutRequest(m)
		return max(len(o.Take(nil)), echoHeader)
	}
	reply := func(m *wire.Reply) int {
		var o wire.Outbox
		m.Call = call
		o.PutReply(m)
		return max(len(o.Take(nil)), echoHeader)
	}
	return sizes{
		Claim:   request(&wire.Request{Claim: wire.NewWant(&want)}),
		Claimed: reply(&wire.Reply{Status: wire.NewAnswer(&status, session, &want)}),
		End:     request(&wire.Request{End: wire.NewEnding(&release)}),
		Ended:   reply(&wire.Reply{}),
	}
}
