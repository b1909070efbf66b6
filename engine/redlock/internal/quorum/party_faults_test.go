package quorum

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A claim waits for the stamp of a server that does not answer: its timer is in the future then, and
// Tick returns.
func TestSilentServerLeavesNoTimerInThePast(t *testing.T) {
	s := newSim(t, 3, 2, 7)
	u, v := s.user(0, "u"), s.user(1, "v")
	rival := Request{Kind: Claim, Session: "v", Epoch: v.key.Epoch, ID: 1, Want: WantRecord{Paths: []string{"a"}}}
	s.servers[0].Apply(s.clock(0), rival)
	s.servers[1].floor += 100 // its vote has another number
	w := want("a", lockkeeper.Forever)
	w.ID = 1
	u.p.Claim(s.now, u.key, w)
	for _, send := range u.p.Output().Sends {
		sent := s.now
		reply, _ := s.servers[send.Server].Apply(s.clock(send.Server), send.Request)
		s.now += 10 * time.Millisecond
		u.p.Reply(s.now, send.Number, sent, reply)
	}
	stamps := u.p.Output().Sends
	if len(stamps) != 1 || stamps[0].Request.Kind != Stamp {
		t.Fatalf("two votes with different numbers lead to %+v, want one Stamp", stamps)
	}
	for range 10 {
		s.now += slowServer
		u.p.Tick(s.now)
		if next := u.p.Next(); next <= s.now {
			t.Fatalf("after Tick at %s the next is at %s", s.now, next)
		}
	}
}

// A server was away for longer than the sessions live there: it ends them, and says so. When it has
// them again, the claims wait there again.
func TestWaitGoesOnWhereItsSessionExpired(t *testing.T) {
	s := newSim(t, 3, 2, 9)
	u, v := s.user(0, "u"), s.user(1, "v")
	u.claim(want("a", 0))
	v.claim(want("a", lockkeeper.Forever))
	s.dead[0] = true
	for range 8 {
		s.run(3 * time.Second)
		u.renew()
		v.renew()
	}
	s.dead[0] = false
	for range 2 {
		s.run(time.Second)
		u.renew()
		v.renew()
	}
	s.dead[1] = true
	u.release(1)
	s.run(3 * time.Second)
	s.must(v.latest(1), lockkeeper.Held, 0)
}

// A server is away while a claim begins to wait, and the client states with its next call that the
// claim is answered (R16). When the server is back, the claim waits there, too: it is granted although
// another server is away then.
func TestAnsweredWaitReachesServerThatWasAway(t *testing.T) {
	for _, notices := range []bool{false, true} { // the party notices that the server is away
		s := newSim(t, 3, 2, 9)
		u, v := s.user(0, "u"), s.user(1, "v")
		u.claim(want("a", 0))
		s.dead[0] = true
		if notices {
			v.p.Down(s.now, 0)
		}
		s.must(v.claim(want("a", lockkeeper.Forever)), lockkeeper.Waiting, 0)
		v.renew()
		s.dead[0] = false
		if notices {
			v.p.Up(s.now, 0)
		}
		for range 2 {
			s.run(3 * time.Second)
			u.renew()
			v.renew()
		}
		s.dead[1] = true
		u.release(1)
		s.run(3 * time.Second)
		s.must(v.latest(1), lockkeeper.Held, 0)
	}
}

// A session expires at one server, which says so, and the client attaches again. The claim that waits at
// the others waits there again, too: it is granted although another server is away then.
func TestAttachRestoresWaitThatExpiredAtOneServer(t *testing.T) {
	s := newSim(t, 3, 2, 9)
	u, v := s.user(0, "u"), s.user(1, "v")
	u.claim(want("a", 0))
	s.must(v.claim(want("a", lockkeeper.Forever)), lockkeeper.Waiting, 0)
	s.servers[0].sessions["v"].until = s.clock(0)
	s.apply(0, Request{Kind: List, Only: "-"})
	s.run(10 * time.Millisecond)
	if b := &v.p.sessions["v"].claims[1].at[0]; !b.ended {
		t.Fatalf("the party does not know that the claim expired at one server: %+v", b)
	}
	v.attach(1)
	s.run(time.Second)
	s.dead[1] = true
	u.release(1)
	s.run(3 * time.Second)
	s.must(v.latest(1), lockkeeper.Held, 0)
}

// A hold has the votes of three servers. Its session expires at the first, which then votes for a rival,
// and the party learns neither. Its client attaches again, and that is its last exchange with any server.
// The promise that the first server gives with the Attach is not one for the hold.
func TestAttachDoesNotCountVotesThatExpired(t *testing.T) {
	s := newSim(t, 3, 2, 9)
	u, v := s.user(0, "u"), s.user(1, "v")
	s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
	s.must(v.claim(want("a", lockkeeper.Forever)), lockkeeper.Waiting, 0)
	s.cut[link{u.p, 0}] = true
	for range 4 {
		s.run(3 * time.Second)
		u.renew()
		v.renew()
	}
	s.cut[link{u.p, 2}] = true
	s.run(3 * time.Second)
	v.renew()
	call := u.p.Attach(s.now, lockkeeper.Session{ID: "u", TTL: u.ttl, Epoch: u.key.Epoch, Named: []uint64{1}})
	sent := s.now
	for _, send := range u.p.Output().Sends {
		if send.Request.Kind == Attach && send.Server != 2 {
			reply := s.apply(send.Server, send.Request)
			u.p.Reply(s.now, send.Number, sent, reply)
		}
	}
	s.cut[link{u.p, 1}] = true
	lease := s.await(u.p, call).Lease
	s.must(lease.Claims[0], lockkeeper.Held, 0)
	for s.now < sent+lease.TTL {
		if v.latest(1).State == lockkeeper.Held {
			t.Fatalf("the rival holds %s before the lease of the holder ends", sent+lease.TTL-s.now)
		}
		v.renew()
		s.run(100 * time.Millisecond)
	}
	s.run(3 * time.Second)
	s.must(v.latest(1), lockkeeper.Held, 0)
}

// The first answer of one server to a Claim is lost, and the claim never arrived there. The party asks
// the server again when the client has stated that the claim is answered.
func TestLostClaimIsMadeAfterItsAnswer(t *testing.T) {
	s := newSim(t, 3, 2, 9)
	u, v := s.user(0, "u"), s.user(1, "v")
	u.claim(want("a", 0))
	s.cut[link{v.p, 0}] = true
	s.must(v.claim(want("a", lockkeeper.Forever)), lockkeeper.Waiting, 0)
	s.must(v.claim(want("b", 0)), lockkeeper.Held, 0)
	s.cut[link{v.p, 0}] = false
	s.run(3 * time.Second) // it polls
	s.dead[1] = true
	u.release(1)
	s.run(3 * time.Second)
	s.must(v.latest(1), lockkeeper.Held, 0)
}

// The answer of one server to the Attach is lost after a majority has accepted it. The session is
// restored there all the same, if that server loses it.
func TestServerIsRestoredAfterItsAttachFailed(t *testing.T) {
	s := newSim(t, 3, 1, 9)
	p := s.parties[0]
	call := p.Attach(s.now, lockkeeper.Session{ID: "u", TTL: 10 * time.Second})
	var late Send
	for _, send := range p.Output().Sends {
		reply, _ := s.servers[send.Server].Apply(s.clock(send.Server), send.Request)
		if send.Server == 2 {
			late = send
			continue
		}
		p.Reply(s.now, send.Number, s.now, reply)
	}
	u := &user{sim: s, p: p, ttl: 10 * time.Second}
	u.key = s.await(p, call).Lease.Key
	p.Failed(s.now, late.Number, false)
	p.Down(s.now, 2)
	p.Lost(s.now, 2)
	s.servers[2] = NewServer(Limits{})
	p.Up(s.now, 2)
	s.collect(p)
	s.run(time.Second)
	u.renew()
	s.run(time.Second)
	if s.servers[2].sessions["u"] == nil {
		t.Error("the server that takes part again does not have the session")
	}
}

// Another party takes a session over, and reaches one only of the two servers that voted for its
// hold. It can't confirm the hold, because the other server may let it expire: it says that the claim has
// ended, with a change that the client takes for news. The client may not get that answer, so the vote stays
// until the end that it knew before.
func TestHoldIsNotTakenOverWithAMinorityOfItsVotes(t *testing.T) {
	s := newSim(t, 3, 3, 9)
	s.cut[link{s.parties[0], 2}] = true
	u, v := s.user(0, "u"), s.user(2, "v")
	held := s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
	s.must(v.claim(want("a", lockkeeper.Forever)), lockkeeper.Waiting, 0)
	end := s.now + u.renew().TTL
	for i := range 3 {
		s.cut[link{s.parties[0], i}] = true // the first party dies
	}
	heir := &user{sim: s, p: s.parties[1], key: u.key, id: u.id, ttl: u.ttl}
	s.cut[link{heir.p, 0}] = true
	lease := heir.attach(1)
	if len(lease.Claims) != 1 || s.must(lease.Claims[0], lockkeeper.Ended, lockkeeper.Expired).Change <= held.Change {
		t.Errorf("claims %+v after change %d", lease.Claims, held.Change)
	}
	for s.now < end-lockkeeper.Margin(u.ttl) {
		if v.latest(1).State == lockkeeper.Held {
			t.Fatalf("the rival holds %s before the end that the holder knows", end-s.now)
		}
		heir.renew()
		v.renew()
		s.run(100 * time.Millisecond)
	}
	for range 2 {
		s.run(2 * time.Second)
		heir.renew()
		v.renew()
	}
	if st := heir.latest(1); st.State == lockkeeper.Held || st.State == lockkeeper.Waiting {
		t.Errorf("the heir is notified of %+v", st)
	}
	s.must(v.latest(1), lockkeeper.Held, 0)
}

// A session expired at two of three servers. The third one still lists its hold. An Attach that names
// the hold is told that it ended, whichever servers answer first.
func TestEndedSessionIsNotRevivedByAMinority(t *testing.T) {
	for seed := range uint64(20) {
		s := newSim(t, 3, 2, seed)
		u := s.user(0, "u")
		s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
		for i := range 3 {
			s.cut[link{s.parties[0], i}] = true
			if i != int(seed%3) {
				s.servers[i].sessions["u"].until = s.clock(i)
			}
		}
		heir := &user{sim: s, p: s.parties[1], key: u.key, id: u.id, ttl: u.ttl}
		for _, st := range heir.attach(1).Claims {
			s.must(st, lockkeeper.Ended, lockkeeper.Expired)
		}
		s.run(time.Second)
		if st := heir.latest(1); st.State == lockkeeper.Waiting || st.State == lockkeeper.Held {
			t.Errorf("seed %d: it came back: %+v", seed, st)
		}
		s.must(heir.claim(want("a", 0)), lockkeeper.Held, 0)
	}
}

// A Return is lost, and the only other server that answers votes for the claim. The party returns the
// vote again, so the claim gets it under a new number, and is granted.
func TestLostReturnIsRepeated(t *testing.T) {
	s := newSim(t, 3, 2, 7)
	u, v := s.user(0, "u"), s.user(1, "v")
	s.dead[2] = true
	v.p.Down(s.now, 2)
	u.p.Down(s.now, 2)
	rival := WantRecord{Paths: []string{"a"}} // its ticket goes before that of u
	s.servers[1].Apply(s.clock(1), Request{Kind: Claim, Session: "v", Epoch: v.key.Epoch, ID: 1, Want: rival})
	w := want("a", lockkeeper.Forever)
	w.ID = 1
	u.p.Claim(s.now, u.key, w)
	lost := false
	for range 200 {
		s.now += time.Millisecond
		u.p.Tick(s.now)
		for _, send := range u.p.Output().Sends {
			sent := s.now
			if send.Request.Kind == Return && !lost {
				lost = true
				u.p.Failed(s.now, send.Number, false)
				continue
			}
			reply, _ := s.servers[send.Server].Apply(s.clock(send.Server), send.Request)
			u.p.Reply(s.now, send.Number, sent, reply)
		}
	}
	if !lost {
		t.Fatal("no vote was returned")
	}
	s.servers[1].Apply(s.clock(1), Request{
		Kind: End, Session: "v", Epoch: v.key.Epoch, ID: 1, Reason: lockkeeper.Released,
	})
	s.run(4 * time.Second)
	s.must(u.latest(1), lockkeeper.Held, 0)
}

// The holder is asked until a time. Where a server is away that was not asked, the first server that
// gives the vote to the thief must not make the ask vanish: a client that had stopped would go on.
func TestAskStandsWhileTheServersEndTheHold(t *testing.T) {
	for seed := range uint64(10) {
		s := newSim(t, 3, 2, seed)
		u, v := s.user(0, "u"), s.user(1, "v")
		u.claim(want("a", 0))
		s.dead[2] = true
		w := want("a", lockkeeper.Forever)
		w.Priority, w.Steal, w.After = 1, lockkeeper.Take, u.ttl
		s.must(v.claim(w), lockkeeper.Waiting, 0)
		for range 12 {
			s.run(time.Second)
			u.renew()
			v.renew()
		}
		s.must(v.latest(1), lockkeeper.Held, 0)
		asked := false
		for _, st := range u.notices[u.p] {
			if asked && st.State == lockkeeper.Held && st.Asked == nil {
				t.Fatalf("seed %d: the ask was withdrawn, and then the hold was stolen", seed)
			}
			asked = asked || st.Asked != nil
		}
		if !asked {
			t.Fatal("the holder was not asked")
		}
	}
}

// The answer to the Attach that takes a session over is lost on its way to the client, which relies
// on what it knew before: a thief that is granted before that has passed is unconfirmed.
func TestLostAnswerToATakeoverAcknowledgesNothing(t *testing.T) {
	for seed := range uint64(10) {
		s := newSim(t, 3, 3, seed)
		u, v := s.user(0, "u"), s.user(2, "v")
		u.claim(want("a", 0))
		u.key.Acked = u.renew().Number
		u.renew()
		for i := range 3 {
			s.cut[link{s.parties[0], i}] = true // the party dies, and the client lives
		}
		w := want("a", lockkeeper.Forever)
		w.Priority, w.Steal, w.After = 1, lockkeeper.Take, 2*time.Second
		v.claim(w)
		heir := &user{sim: s, p: s.parties[1], key: u.key, id: u.id, ttl: u.ttl}
		heir.attach(1)
		s.run(3 * time.Second)
		if st := s.must(v.latest(1), lockkeeper.Held, 0); !st.Unconfirmed {
			t.Errorf("seed %d: the client never saw that it was asked, and the grant is confirmed", seed)
		}
	}
}

// One of three servers asks the holder for a thief that the others do not know. That brings the
// deadline nearer only if the promises of the two others are nearer than what the client was told.
func TestAskAtAMinorityOfServers(t *testing.T) {
	for _, cut := range []bool{false, true} {
		s := newSim(t, 3, 2, 9)
		u, v := s.user(0, "u"), s.user(1, "v")
		u.claim(want("a", 0))
		u.renew()
		for i, later := range []time.Duration{0, 2 * time.Millisecond, time.Millisecond} {
			u.p.sessions["u"].seats[i].promise += later // its Renew left later
		}
		s.cut[link{v.p, 0}], s.cut[link{v.p, 2}] = true, true
		w := want("a", lockkeeper.Forever)
		w.ID, w.Priority, w.Steal, w.After = 1, 1, lockkeeper.Take, time.Second
		v.p.Claim(s.now, v.key, w)
		s.collect(v.p)
		s.run(100 * time.Millisecond)
		if asked := u.latest(1).Asked; asked != nil {
			t.Fatalf("asked by one server of three: %+v", asked)
		}
		s.cut[link{u.p, 0}] = cut
		s.run(300 * time.Millisecond)
		sent := s.now
		lease := u.renew()
		end := sent + lease.TTL
		for _, st := range lease.Claims {
			if st.Asked != nil {
				end = min(end, sent+st.Asked.Left)
			}
		}
		present, safe := s.now, 0
		for i, server := range s.servers {
			left := server.sessions["u"].until - s.clock(i)
			if c := server.sessions["u"].claims[1]; len(c.asks) > 0 {
				left = min(left, c.asks[0].End-s.clock(i))
			}
			if present+left.duration() >= end {
				safe++
			}
		}
		if safe < 2 {
			t.Errorf("cut %v: the holder relies on %s, and only %d servers keep its vote as long", cut, end-sent, safe)
		}
		if !cut && end-sent < 9*time.Second {
			t.Errorf("the holder is told %s, by one server of three", end-sent)
		}
	}
}

// A server answers each End that it is full, as it does if somebody damaged its data. The party asks
// again after a pause, not at once for as long as the session lives.
func TestEndAtAFullServerIsRepeatedWithAPause(t *testing.T) {
	s := newSim(t, 3, 1, 7)
	u := s.user(0, "u")
	u.claim(want("a", 0))
	u.p.End(s.now, u.key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1})
	ends := 0
	for range 100 {
		for _, send := range u.p.Output().Sends {
			sent := s.now
			reply, _ := s.servers[send.Server].Apply(s.clock(send.Server), send.Request)
			if send.Server == 1 && send.Request.Kind == End {
				ends++
				reply = Reply{Outcome: Full, Now: s.clock(1), Text: "damaged"}
			}
			u.p.Reply(s.now, send.Number, sent, reply)
		}
		s.now += 20 * time.Millisecond
		u.p.Tick(s.now)
	}
	if ends < 2 || ends > 4 {
		t.Errorf("%d Ends within 2s, want one per second", ends)
	}
}

// A bounded wait of which the client has no answer is taken over. The client repeats the request,
// which states the bound: the wait ends by that.
func TestRepeatedRequestBoundsAnAdoptedWait(t *testing.T) {
	s := newSim(t, 3, 3, 9)
	u, v := s.user(0, "u"), s.user(2, "v")
	v.claim(want("a", 0))
	bounded := want("a", 3*time.Second)
	bounded.ID = 1
	u.claim(bounded)
	s.run(time.Second)
	for i := range 3 {
		s.cut[link{s.parties[0], i}] = true // the first party dies
	}
	heir := &user{sim: s, p: s.parties[1], key: u.key, id: u.id, ttl: u.ttl}
	heir.attach(1)
	s.must(heir.claim(bounded), lockkeeper.Waiting, 0)
	s.run(time.Second)
	if st := heir.latest(1); st.State == lockkeeper.Ended {
		t.Fatalf("ended before its bound: %+v", st)
	}
	s.run(1500 * time.Millisecond)
	s.must(heir.latest(1), lockkeeper.Ended, lockkeeper.TimedOut)
}
