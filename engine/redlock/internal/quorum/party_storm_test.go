package quorum

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A client attaches again, and one of three servers has accepted that. It refuses what its party still asks
// under the old epoch, until a second server answers. The party does not repeat such a request as fast as the
// server refuses it.
func TestOldEpochIsNotRepeatedWhereTheAttachIsAccepted(t *testing.T) {
	for _, c := range []struct {
		name string
		kind Kind
		do   func(s *sim, u, v *user, attach func())
	}{
		{"Lapse", Lapse, func(s *sim, u, _ *user, attach func()) {
			s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
			attach()
			lapse := lockkeeper.Lapse{ID: 1, Reason: lockkeeper.Expired}
			u.p.End(s.now, u.key, lockkeeper.Ending{Kind: lockkeeper.Lapsed, Lapse: lapse})
		}},
		{"Stamp", Stamp, func(s *sim, u, _ *user, attach func()) {
			s.servers[1].floor += 100 // its vote has another number
			s.silent[2] = true
			w := want("a", lockkeeper.Forever)
			w.ID = 1
			u.p.Claim(s.now, u.key, w)
			for _, send := range u.p.Output().Sends { // they are answered after the Attach
				if send.Server < 2 {
					r, sent := s.apply(send.Server, send.Request), s.now
					s.deliver(u.p, 20*time.Millisecond, func() { u.p.Reply(s.now, send.Number, sent, r) })
				}
			}
			attach()
		}},
		{"Claim", Claim, func(s *sim, u, v *user, attach func()) {
			s.must(v.claim(want("a", 0)), lockkeeper.Held, 0)
			w := want("a", lockkeeper.Forever)
			s.must(u.claim(w), lockkeeper.Waiting, 0)
			attach()
			w.ID, w.Revision, w.Priority = 1, 1, 5
			u.p.Claim(s.now, u.key, w)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSim(t, 3, 2, 9)
			u, v := s.user(0, "u"), s.user(1, "v")
			c.do(s, u, v, func() {
				s.silent[1], s.silent[2] = true, true
				u.p.Attach(s.now, lockkeeper.Session{ID: "u", TTL: u.ttl, Epoch: u.key.Epoch, Named: []uint64{1}})
				s.collect(u.p)
				s.run(10 * time.Millisecond)
				if a := u.p.attempts["u"]; a == nil || !a.replies[0].got || u.p.sessions["u"] == nil {
					t.Fatal("one server has not accepted the Attach alone")
				}
			})
			s.collect(u.p)
			clear(s.sends)
			s.run(100 * time.Millisecond)
			if n := s.sends[c.kind]; n > 10 {
				t.Errorf("%d requests within 100ms", n)
			}
		})
	}
}

// A hold is released while an Attach is on its way that names it, and all servers execute the Attach first: they
// refuse the End. The session ends at the party before it gets their answers. The release counts: the attempt does
// not go on with the hold.
func TestReleaseDuringAnAttachCounts(t *testing.T) {
	s := newSim(t, 3, 2, 9)
	u, v := s.user(0, "u"), s.user(1, "v")
	s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
	s.run(time.Second)
	call := u.p.Attach(s.now, lockkeeper.Session{ID: "u", TTL: u.ttl, Epoch: u.key.Epoch, Named: []uint64{1}})
	attach := u.p.Output().Sends
	sent := s.now
	var replies []Reply
	for _, send := range attach {
		replies = append(replies, s.apply(send.Server, send.Request))
	}
	u.p.End(s.now, u.key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1})
	s.collect(u.p)
	v.renew()
	s.run(9100 * time.Millisecond) // the lease is over, and the servers have given another one
	if u.p.sessions["u"] != nil {
		t.Fatal("the session has not ended at its party")
	}
	for i, send := range attach {
		u.p.Reply(s.now, send.Number, sent, replies[i])
	}
	for _, st := range s.await(u.p, call).Lease.Claims {
		if st.State != lockkeeper.Ended {
			t.Errorf("the released hold came back: %+v", st)
		}
	}
	s.run(100 * time.Millisecond)
	s.must(v.claim(want("a", 0)), lockkeeper.Held, 0)
}
