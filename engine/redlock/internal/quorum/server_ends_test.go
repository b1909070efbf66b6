package quorum

import (
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// ends lists what the server shows followers.
func (b *bench) ends() []EndRecord {
	b.Helper()
	return b.do(Done, Request{Kind: List, Ends: true}).Ends
}

func TestServerKeepsEndsForFollowersAlone(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100_000_000)
	end := func(id uint64) {
		b.claim("a", id, WantRecord{Ticket: id}, "x")
		b.do(Done, Request{Kind: End, Session: "a", ID: id, LowestOpen: id + 1, Reason: lockkeeper.Released})
	}
	end(1)
	if got := b.ends(); len(got) != 0 {
		t.Errorf("nobody followed, and the server has %v", got)
	}
	end(2)
	b.now += FollowedFor - 1
	want := EndRecord{At: 1000, Ref: lockkeeper.Ref{Session: "a", ID: 2}, Reason: lockkeeper.Released}
	if got := b.ends(); len(got) != 1 || got[0] != want {
		t.Errorf("ends %v, want %v", got, want)
	}
	b.now += FollowedFor
	end(3)
	if got := b.ends(); len(got) != 1 {
		t.Errorf("a while after the last follower the server has %v", got)
	}
	b.now = want.At + EndsShown + 1
	if got := b.ends(); len(got) != 0 {
		t.Errorf("old ends are shown: %v", got)
	}
	for id := range uint64(MaxEnds + 10) {
		end(id + 4)
	}
	if got := b.ends(); len(got) != MaxEnds || got[0].Ref.ID != 14 {
		t.Errorf("%d ends from %v on", len(got), got[0])
	}
}

// The client of a lapsed claim knows its end, so the server forgets the claim as soon as it ends. A List
// may be the request in which that happens.
func TestServerListsEndsOfItsOwnRequest(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	b.ends()
	b.claim("a", 1, WantRecord{}, "x")
	b.do(Done, Request{Kind: Lapse, Session: "a", ID: 1, Reason: lockkeeper.Expired})
	b.do(Done, Request{Kind: Renew, Session: "a", LowestOpen: 2})
	b.now += 100
	want := EndRecord{At: b.now, Ref: lockkeeper.Ref{Session: "a", ID: 1}, Reason: lockkeeper.Expired}
	for range 2 {
		if got := b.ends(); len(got) != 1 || got[0] != want {
			t.Errorf("ends %v, want %v", got, want)
		}
	}
}

// A forced end leaves the grant unsure until the former holder knows of the end. If several former
// holders are in doubt, none of them ends the doubt alone.
func TestServerDoubtEndsWhenTheVictimKnows(t *testing.T) {
	revoked := func(b *bench, sessions ...string) {
		b.Helper()
		for _, s := range sessions {
			b.attach(s, 100)
			b.claim(s, 1, WantRecord{}, "x")
			b.do(Done, Request{Kind: Revoke, Session: s, ID: 1, Force: true})
		}
		b.attach("next", 100)
	}
	knows := map[string]func(b *bench){
		"released": func(b *bench) {
			b.do(Done, Request{Kind: End, Session: "a", ID: 1, Reason: lockkeeper.Revoked})
		},
		"left": func(b *bench) { b.do(Done, Request{Kind: Leave, Session: "a"}) },
		"attached without it": func(b *bench) {
			b.do(Done, Request{Kind: Attach, Session: "a", Epoch: 1, Attach: AttachRequest{NewEpoch: 2, TTL: 100}})
		},
	}
	for name, know := range knows {
		b := newBench(t)
		revoked(b, "a")
		know(b)
		if c := b.claim("next", 1, WantRecord{}, "x"); c.Unsure != 0 {
			t.Errorf("%s: unsure until %d", name, c.Unsure)
		}
		b = newBench(t)
		revoked(b, "a", "b")
		know(b)
		if c := b.claim("next", 1, WantRecord{}, "x"); c.Unsure == 0 {
			t.Errorf("%s: sure, though another victim does not know", name)
		}
	}
	b := newBench(t)
	revoked(b, "a")
	b.do(Done, Request{Kind: Attach, Session: "a", Epoch: 1, Attach: AttachRequest{
		NewEpoch: 2, TTL: 100, Named: []uint64{1},
	}})
	if c := b.claim("next", 1, WantRecord{}, "x"); c.Unsure != 1100 {
		t.Errorf("the victim named it, and the next grant is unsure until %d", c.Unsure)
	}
}
