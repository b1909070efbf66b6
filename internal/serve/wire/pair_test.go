package wire

import (
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// aPair is what crosses the wire for a lock and its release.
type aPair struct {
	claim, end Call
	want       lockkeeper.Want
	status     lockkeeper.Status
	ending     lockkeeper.Ending

	out  Outbox
	room []byte
}

func newPair() *aPair {
	id := uint64(77 << 20)
	key := lockkeeper.Key{LowestOpen: id}
	p := &aPair{
		claim: Call{Number: 3<<20 | 5, Handle: NewHandle(0, 1), Key: key, Method: MethodClaim},
		end:   Call{Number: 3<<20 | 6, Handle: NewHandle(0, 1), Key: key, Method: MethodEnd},
		want: lockkeeper.Want{ID: id, Wait: lockkeeper.Forever,
			Targets: []lockkeeper.Target{{Path: "app-17/production/13", Mode: lockkeeper.ModeExclusive}}},
		ending: lockkeeper.Ending{Kind: lockkeeper.Release, ID: id},
	}
	p.status = lockkeeper.Status{Ref: lockkeeper.Ref{Session: ownSession, ID: id}, Change: 123456,
		State: lockkeeper.Held, Fence: 99999, Ticket: 88888, Left: lockkeeper.Forever,
		Grants: []lockkeeper.Grant{{Target: p.want.Targets[0]}}}
	return p
}

// frame returns the message of the frame in the outbox.
func (p *aPair) frame() []byte {
	p.room = p.out.Take(p.room)
	return p.room[headRoom:]
}

// byHand sends and reads the four messages as engine/remote and the server do.
func (p *aPair) byHand(tb testing.TB) (fence uint64) {
	must := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	element := func(field Field) []byte {
		e := NewElements(p.frame())
		if !e.Next() || e.Field() != field {
			tb.Fatal("the frame has no such element")
		}
		return e.Message()
	}
	var c Call
	var w lockkeeper.Want
	p.out.PutClaim(&p.claim, &p.want)
	must(ParseCall(element(FieldRequests), &c))
	must(c.Want(&w))
	p.out.PutStatus(c.Number, &p.status, ownSession, &w)
	var s lockkeeper.Status
	a, err := ParseAnswer(element(FieldReplies))
	must(err)
	must(a.Status(ownSession, &p.want, &s))
	p.out.PutEnd(&p.end, &p.ending)
	must(ParseCall(element(FieldRequests), &c))
	e, err := c.Ending()
	must(err)
	p.out.PutDone(c.Number)
	_, err = ParseAnswer(element(FieldReplies))
	must(err)
	return s.Fence + e.ID
}

// generated does the same by generated code.
func (p *aPair) generated(tb testing.TB) (fence uint64) {
	request := func(c *Call) *Request {
		return &Request{Call: c.Number, Handle: c.Handle, LowestOpen: c.Key.LowestOpen}
	}
	serve := func() *Request {
		var f ClientFrame
		if err := f.UnmarshalVT(p.frame()); err != nil {
			tb.Fatal(err)
		}
		return f.GetRequests()[0]
	}
	receive := func() *Reply {
		var f ServerFrame
		if err := f.UnmarshalVT(p.frame()); err != nil {
			tb.Fatal(err)
		}
		return f.GetReplies()[0]
	}
	m := request(&p.claim)
	m.Claim = NewWant(&p.want)
	p.out.PutRequest(m)
	m = serve()
	w := m.GetClaim().Read()
	p.out.PutReply(&Reply{Call: m.GetCall(), Status: NewAnswer(&p.status, ownSession, &w)})
	s := receive().GetStatus().readAnswer(ownSession, &p.want)
	m = request(&p.end)
	m.End = NewEnding(&p.ending)
	p.out.PutRequest(m)
	e := serve().GetEnd().Read()
	p.out.PutReply(&Reply{Call: p.end.Number})
	receive()
	return s.Fence + e.ID
}

// BenchmarkPair measures the messages of a lock and its release, on both sides.
func BenchmarkPair(b *testing.B) {
	for name, pair := range map[string]func(*aPair, testing.TB) uint64{
		"hand": (*aPair).byHand, "generated": (*aPair).generated,
	} {
		b.Run(name, func(b *testing.B) {
			p := newPair()
			b.ReportAllocs()
			for b.Loop() {
				pair(p, b)
			}
		})
	}
}

// A pair allocates what it hands out: the path and the targets to the server, the grants to the caller.
func TestFewAllocationsForPair(t *testing.T) {
	p := newPair()
	p.byHand(t)
	if n := testing.AllocsPerRun(100, func() { p.byHand(t) }); n > 3 {
		t.Errorf("%.0f allocations", n)
	}
}
