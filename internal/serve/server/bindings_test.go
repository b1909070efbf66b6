package server

import (
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// renewed asks for a renewal and returns the session's epoch as the answer states it, or fails.
func (p *peer) renewed(handle uint64, key *wire.Key) uint64 {
	p.t.Helper()
	m := p.answered(p.ask(&wire.Request{Handle: handle, Key: key, Renew: true}))
	if m.GetError() != nil {
		p.t.Fatal(m.GetError().Read())
	}
	return m.GetLease().GetEpoch()
}

func TestHandleStandsForItsSession(t *testing.T) {
	_, address := startMemory(t)
	p := greeted(t, address)
	ann, bob := p.attach("ann"), p.attach("bob")
	first, second, again := wire.NewHandle(3, 1), wire.NewHandle(0, 1), wire.NewHandle(3, 2)
	p.renewed(first, &wire.Key{Session: "ann", Epoch: ann})
	p.renewed(second, &wire.Key{Session: "bob", Epoch: bob})
	p.renewed(first, &wire.Key{Session: "ann", Epoch: ann}) // again as it is
	if got := p.renewed(first, nil); got != ann {
		t.Errorf("the handle of ann, epoch %d, renews epoch %d", ann, got)
	}
	// A binding takes effect at its place among the requests of a frame.
	requests := p.numbered(
		&wire.Request{Handle: first, Renew: true},
		&wire.Request{Handle: again, Key: &wire.Key{Session: "bob", Epoch: bob}, Renew: true},
		&wire.Request{Handle: again, Renew: true},
	)
	p.send(&wire.ClientFrame{Requests: requests})
	for i, want := range []uint64{ann, bob, bob} {
		if m := p.answered(requests[i].GetCall()); m.GetLease().GetEpoch() != want {
			t.Errorf("request %d: %v, want epoch %d", i, m, want)
		}
	}
}

// A handle gives no rights: the engine checks the key that it stands for.
func TestHandleOfFormerEpochIsRefused(t *testing.T) {
	_, address := startMemory(t)
	p := greeted(t, address)
	handle := wire.NewHandle(0, 1)
	epoch := p.attach("ann")
	p.renewed(handle, &wire.Key{Session: "ann", Epoch: epoch})
	m := p.answered(p.ask(&wire.Request{Attach: &wire.Session{Id: "ann", Ttl: int64(time.Minute), Epoch: epoch}}))
	if m.GetLease().GetEpoch() <= epoch {
		t.Fatalf("attached again: %v", m)
	}
	m = p.answered(p.ask(&wire.Request{Handle: handle, Renew: true}))
	if m.GetError().GetCode() != wire.Code_CODE_SESSION {
		t.Errorf("a renewal under the former epoch: %v", m)
	}
}

func TestHintsNameTheHandle(t *testing.T) {
	_, address := startMemory(t)
	p, other := greeted(t, address), greeted(t, address)
	epoch, others := p.attach("ann"), other.attach("bob")
	for id := uint64(1); id <= 3; id++ {
		other.held("bob", others, id, "db")
		p.waiting("ann", epoch, id, "db")
		want := wire.Status{Session: "ann"}
		switch id {
		case 2: // with a handle from now on
			want = wire.Status{Handle: wire.NewHandle(9, 1)}
			p.renewed(want.Handle, &wire.Key{Session: "ann", Epoch: epoch})
		case 3: // the slot has another session now
			p.renewed(wire.NewHandle(9, 2), &wire.Key{Session: "carl", Epoch: p.attach("carl")})
		}
		other.release("bob", others, id)
		p.until("waiting for the hint", func() bool {
			for _, m := range p.changed {
				if m.GetId() == id && m.GetState() == wire.State_STATE_HELD {
					if m.GetSession() != want.Session || m.GetHandle() != want.Handle {
						t.Errorf("hint %d names session %q, handle %d", id, m.GetSession(), m.GetHandle())
					}
					return true
				}
			}
			return false
		})
		p.release("ann", epoch, id)
	}
}

func TestInvalidHandlesEndTheConnection(t *testing.T) {
	_, address := startMemory(t)
	holder := greeted(t, address)
	key := &wire.Key{Session: "me", Epoch: holder.attach("me")}
	holder.renewed(wire.NewHandle(0, 1), key)
	for name, all := range map[string][]*wire.Request{
		"never bound":                 {{Handle: wire.NewHandle(5, 1), Renew: true}},
		"bound by another connection": {{Handle: wire.NewHandle(0, 1), Renew: true}},
		"generation 0":                {{Handle: wire.NewHandle(5, 0), Renew: true}},
		"generation 0 with a key":     {{Handle: wire.NewHandle(5, 0), Key: key, Renew: true}},
		"a session id that is too long": {{Handle: wire.NewHandle(0, 1), Key: &wire.Key{
			Session: strings.Repeat("x", lockkeeper.MaxSessionID+1),
		}, Renew: true}},
		"a former generation": {
			{Handle: wire.NewHandle(0, 1), Key: key, Renew: true},
			{Handle: wire.NewHandle(0, 2), Key: key, Renew: true},
			{Handle: wire.NewHandle(0, 1), Renew: true},
		},
		"a generation that does not rise": {
			{Handle: wire.NewHandle(0, 7), Key: key, Renew: true},
			{Handle: wire.NewHandle(0, 7), Key: &wire.Key{Session: "other", Epoch: 1}, Renew: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := greeted(t, address)
			p.send(&wire.ClientFrame{Requests: p.numbered(all...)})
			p.over(lockkeeper.ErrInvalid)
		})
	}
	holder.renewed(wire.NewHandle(0, 1), nil) // nobody else did it harm
}

func TestPing(t *testing.T) {
	_, address := startMemory(t)
	p := greeted(t, address)
	if m := p.answered(p.ask(&wire.Request{Ping: true})); m.GetError() != nil {
		t.Error(m.GetError().Read())
	}
}

// FuzzBindings resolves requests that no client of ours sends: the handles stay within their bounds,
// and each one that resolves stands for the key that bound it last.
func FuzzBindings(f *testing.F) {
	var out wire.Outbox
	for i := range 3 {
		out.PutRequest(&wire.Request{Handle: wire.NewHandle(i, 1), Key: &wire.Key{Session: "a", Epoch: uint64(i)}})
		out.PutRequest(&wire.Request{Handle: wire.NewHandle(i, 1)})
	}
	frame := out.Take(nil)
	f.Add(frame[5:]) // without the length
	f.Fuzz(func(t *testing.T, message []byte) {
		var b bindings
		last := make(map[uint64]lockkeeper.Key)
		for e := wire.NewElements(message); e.Next(); {
			var r wire.Call
			if e.Field() != wire.FieldRequests || wire.ParseCall(e.Message(), &r) != nil {
				return
			}
			key, err := b.resolve(&r)
			if err != nil {
				return
			}
			key.LowestOpen, key.Acked = 0, 0
			if r.Handle != 0 && r.Named {
				last[r.Handle] = key
			} else if want, bound := last[r.Handle]; r.Handle != 0 && (!bound || key != want) {
				t.Fatalf("handle %d stands for %v, want %v", r.Handle, key, want)
			}
			if handle := b.of(key.Session); handle != 0 && last[handle].Session != key.Session {
				t.Fatalf("hints of %q name handle %d, of %q", key.Session, handle, last[handle].Session)
			}
			if len(b.slots) > wire.Slots || len(b.handleOf) > wire.Slots {
				t.Fatalf("%d slots, %d sessions", len(b.slots), len(b.handleOf))
			}
		}
	})
}
