package quorum

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

func TestSplitVotesConverge(t *testing.T) {
	for _, n := range []int{3, 5} {
		for seed := range uint64(10) {
			testSplitVotes(newSim(t, n, n, seed), seed, 500*time.Millisecond, func() {})
		}
	}
}

// A server is silent, and no party has noticed that yet: votes that are split among the others converge.
func TestSplitVotesConvergeWhileAServerIsSilent(t *testing.T) {
	for _, n := range []int{3, 5} {
		for seed := range uint64(10) {
			s := newSim(t, n, n-1, seed)
			for _, i := range s.random.Perm(n)[:n/2] {
				s.silent[i] = true
			}
			testSplitVotes(s, seed, silence/2, func() {})
		}
	}
}

// A server fails every request from the moment when the sessions are open, and no party takes it for down:
// votes that are split among the others converge.
func TestSplitVotesConvergeWhileAServerRefuses(t *testing.T) {
	for _, n := range []int{3, 5} {
		for seed := range uint64(10) {
			s := newSim(t, n, n-1, seed)
			testSplitVotes(s, seed, silence/2, func() {
				for _, i := range s.random.Perm(n)[:n/2] {
					s.dead[i] = true
				}
			})
		}
	}
}

// testSplitVotes has a user of each party claim one path at once. All are served, one after the other,
// within bound. It calls begin before the claims.
func testSplitVotes(s *sim, seed uint64, bound time.Duration, begin func()) {
	s.slowest = 2 * time.Millisecond
	var users []*user
	for i := range s.parties {
		users = append(users, s.user(i, fmt.Sprint("u", i)))
	}
	begin()
	for _, u := range users {
		u.p.Claim(s.now, u.key, lockkeeper.Want{ID: 1, Targets: want("a", 0).Targets, Wait: lockkeeper.Forever})
		s.collect(u.p)
	}
	served := make(map[*user]bool)
	began := s.now
	for len(served) < len(users) && s.now < began+bound {
		s.run(time.Millisecond)
		for _, u := range users {
			st := u.latest(1)
			if a, ok := s.answers[u.p][u.p.call]; ok && a.Status.Ref.ID == 1 && a.Status.State == lockkeeper.Held {
				st = a.Status
			}
			if st.State == lockkeeper.Held && !served[u] {
				served[u] = true
				if err := u.release(1); err != nil {
					s.Fatal(err)
				}
			}
		}
	}
	if len(served) < len(users) {
		s.Fatalf("%d servers, seed %d: %d of %d claims were granted within %s", len(s.servers), seed, len(served),
			len(users), bound)
	}
}

// One of three servers is away. Two claims have the vote of one server each, for different paths, and
// the claim that goes first in the queues wants a path of each, so it has no vote. It gets the votes.
func TestSplitVotesConvergeOnAClaimWithoutVotes(t *testing.T) {
	s := newSim(t, 3, 3, 9)
	x, y, z := s.user(0, "x"), s.user(1, "y"), s.user(2, "z")
	s.dead[2] = true
	first := want("a b", lockkeeper.Forever)
	first.Priority = 1
	wants := []lockkeeper.Want{want("a", lockkeeper.Forever), want("b", lockkeeper.Forever), first}
	sends := make([][]Send, 3)
	for i, u := range []*user{x, y, z} {
		wants[i].ID = 1
		u.p.Claim(s.now, u.key, wants[i])
		sends[i] = u.p.Output().Sends
	}
	for server, order := range [][]int{{0, 2, 1}, {1, 2, 0}} { // of the three claims at a server
		for _, i := range order {
			send := sends[i][server]
			reply := s.apply(server, send.Request)
			s.parties[i].Reply(s.now, send.Number, s.now, reply)
		}
	}
	for i, p := range s.parties {
		p.Down(s.now, 2)
		p.Failed(s.now, sends[i][2].Number, false)
		s.collect(p)
	}
	s.run(5 * time.Second)
	s.must(z.latest(1), lockkeeper.Held, 0)
	z.release(1)
	s.run(3 * time.Second)
	s.must(x.latest(1), lockkeeper.Held, 0)
	s.must(y.latest(1), lockkeeper.Held, 0)
}

func TestAmendmentRaisesThePriority(t *testing.T) {
	each(t, 3, func(s *sim) {
		h, low, high := s.user(0, "h"), s.user(1, "low"), s.user(2, "high")
		h.claim(want("a", 0))
		low.claim(want("a", lockkeeper.Forever))
		w := want("a", lockkeeper.Forever)
		high.claim(w)
		w.ID, w.Revision, w.Priority = 1, 1, 5
		if st := high.claim(w); st.Priority != 5 || st.Revision != 1 || st.State != lockkeeper.Waiting {
			s.Fatalf("amended %+v", st)
		}
		w.Revision, w.Priority = 2, 1
		if a := s.await(high.p, high.p.Claim(s.now, high.key, w)); !errors.Is(a.Err, lockkeeper.ErrInvalid) {
			s.Errorf("lowered: %v", a.Err)
		}
		h.release(1)
		s.run(10 * time.Millisecond)
		s.must(high.latest(1), lockkeeper.Held, 0)
	})
}

// A bound may be shorter than the way to the servers and back. Their answers arrive before they have
// executed the end.
func TestWaitShorterThanRoundTripNamesTheHolder(t *testing.T) {
	each(t, 2, func(s *sim) {
		u, v := s.user(0, "u"), s.user(1, "v")
		u.claim(want("a", 0))
		s.fastest = 20 * time.Millisecond
		st := s.must(v.claim(want("a", time.Millisecond)), lockkeeper.Ended, lockkeeper.TimedOut)
		if len(st.Blockers) == 0 || st.Blockers[0].Ref.Session != "u" || st.Position != 1 {
			s.Errorf("position %d, blockers %+v, want u", st.Position, st.Blockers)
		}
	})
}

func TestHopelessWaitEndsAtOnce(t *testing.T) {
	each(t, 2, func(s *sim) {
		u, v := s.user(0, "u"), s.user(1, "v")
		w := want("a", 0)
		w.Expected = time.Hour
		u.claim(w)
		s.must(v.claim(want("a", time.Minute)), lockkeeper.Ended, lockkeeper.TimedOut)
		s.must(v.claim(want("a", 2*time.Hour)), lockkeeper.Waiting, 0)
	})
}

func TestRevocation(t *testing.T) {
	revoke := func(u *user, ref lockkeeper.Ref, force bool) error {
		return u.await(u.p, u.p.End(u.now, u.key, lockkeeper.Ending{
			Kind: lockkeeper.Revoke, Ref: ref, Force: force, Label: lockkeeper.Label{As: "eve", Note: "now"},
		})).Err
	}
	each(t, 2, func(s *sim) {
		u, op := s.user(0, "u"), s.user(1, "op")
		u.claim(want("a", 0))
		if err := revoke(op, lockkeeper.Ref{Session: "u", ID: 1}, false); err != nil {
			s.Fatal(err)
		}
		s.run(10 * time.Millisecond)
		a := u.latest(1).Asked
		if a == nil || a.Reason != lockkeeper.Revoked || a.As != "eve" || a.Left == lockkeeper.Forever {
			s.Fatalf("asked %+v", a)
		}
		if err := revoke(op, lockkeeper.Ref{Session: "u", ID: 1}, true); err != nil {
			s.Fatal(err)
		}
		s.run(10 * time.Millisecond)
		if st := s.must(u.latest(1), lockkeeper.Ended, lockkeeper.Revoked); st.Text == "" {
			s.Error("the end has no words")
		}
		if st := s.must(op.claim(want("a", 0)), lockkeeper.Held, 0); !st.Unconfirmed {
			s.Error("the victim could not know, and the grant is confirmed")
		}
		if err := revoke(op, lockkeeper.Ref{Session: "nobody", ID: 1}, true); !errors.Is(err, lockkeeper.ErrNotHeld) {
			s.Errorf("of nobody: %v", err)
		}
	})
}

func TestLapsedHoldLastsUntilItsEnd(t *testing.T) {
	each(t, 2, func(s *sim) {
		u, v := s.user(0, "u"), s.user(1, "v")
		u.claim(want("a", 0))
		w := want("a", lockkeeper.Forever)
		w.Priority, w.Steal, w.After = 1, lockkeeper.Take, time.Second
		v.claim(w)
		s.run(10 * time.Millisecond)
		asked := u.latest(1).Asked
		end := lockkeeper.Ending{Kind: lockkeeper.Lapsed, Lapse: lockkeeper.Lapse{
			ID: 1, Reason: lockkeeper.Stolen, EndsAt: asked.EndsAt,
		}}
		for range 2 {
			if a := s.await(u.p, u.p.End(s.now, u.key, end)); a.Err != nil {
				s.Fatal(a.Err)
			}
		}
		v.release(1)
		s.must(v.claim(want("a", 0)), lockkeeper.Ended, lockkeeper.TimedOut)
		s.run(1100 * time.Millisecond)
		s.must(u.latest(1), lockkeeper.Ended, lockkeeper.Stolen)
		if st := s.must(v.claim(want("a", 0)), lockkeeper.Held, 0); st.Unconfirmed {
			s.Error("the client reported the lapse, and the grant is unconfirmed")
		}
	})
}

func TestAttachOfAnotherEpochIsRefused(t *testing.T) {
	each(t, 2, func(s *sim) {
		u := s.user(0, "u")
		u.claim(want("a", 0))
		for _, p := range s.parties[:1] {
			for _, follows := range []uint64{0, u.key.Epoch - 1, u.key.Epoch + 1, u.key.Epoch + 1000} {
				a := s.await(p, p.Attach(s.now, lockkeeper.Session{ID: "u", TTL: u.ttl, Epoch: follows}))
				var e *lockkeeper.Error
				if !errors.As(a.Err, &e) || e.Err != lockkeeper.ErrSession || e.Epoch != u.key.Epoch {
					s.Errorf("follows %d: %+v, %v", follows, a.Lease, a.Err)
				}
			}
		}
		if lease := u.renew(); lease.Key.Epoch != u.key.Epoch {
			s.Errorf("renewed %+v", lease)
		}
		old := u.key.Epoch
		a := s.await(u.p, u.p.End(s.now, u.key, lockkeeper.Ending{Kind: lockkeeper.Leave}))
		if a.Err != nil {
			s.Fatal(a.Err)
		}
		u.key.Epoch = old + 1000
		u.attach()
		if u.key.Epoch <= old {
			s.Errorf("epoch %d after %d", u.key.Epoch, old)
		}
		s.run(time.Second)
		u.id = 0
		s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
	})
}

func TestLostServerTakesItsVotesAlong(t *testing.T) {
	s := newSim(t, 3, 2, 9)
	u := s.user(0, "u")
	s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
	s.run(time.Second)
	u.p.Lost(s.now, 0)
	s.collect(u.p)
	if st := u.latest(1); st.State == lockkeeper.Ended {
		t.Fatalf("lost by a minority: %+v", st)
	}
	u.p.Lost(s.now, 1)
	s.collect(u.p)
	s.must(u.latest(1), lockkeeper.Ended, lockkeeper.Expired)
}

// A vote of a server whose promise has passed does not count beside later votes.
func TestVoteWithoutPromiseIsNoVote(t *testing.T) {
	p := NewParty(Settings{Servers: 3, To: "x", Seed: 1})
	s := p.newSession("u")
	s.ttl, s.clientEnd = 10*time.Second, 20*time.Second
	p.sessions["u"] = s
	for i := range s.seats {
		s.seats[i] = seat{joined: true, promise: 20 * time.Second}
	}
	s.seats[0].promise = 5 * time.Second // its party can't reach it any more
	c := p.newClaim(s, 1, 0)
	c.record = p.recordOf(&lockkeeper.Want{Targets: want("a", 0).Targets, Wait: lockkeeper.Forever}, 1)
	vote := func(server int, number uint64) {
		st := &ClaimState{ID: 1, State: lockkeeper.Held, Vote: number, Counter: number}
		p.apply(c, server, evidence{state: st, now: 1, sent: time.Second, got: time.Second, reply: true})
		p.decide(c, 10*time.Second)
	}
	vote(0, 5)
	vote(1, 5)
	if c.phase == held {
		t.Fatal("granted with a vote whose promise has passed")
	}
	vote(2, 7)
	if c.phase == held {
		t.Fatalf("granted with fence %d: servers 1 and 2 are not stamped with one number", c.fence)
	}
	if c.aim != 7 {
		t.Errorf("it stamps %d, want 7", c.aim)
	}
}

// The clock of a server may run faster than that of the party by 1 %: shortly before the promises pass
// by the clock of the party, the servers may have voted for others already.
func TestNothingIsGrantedWithinTheMarginOfThePromises(t *testing.T) {
	const ttl, end = 10 * time.Second, 20 * time.Second
	margin := lockkeeper.Margin(ttl)
	for _, test := range []struct {
		at      time.Duration
		granted bool
	}{{end - margin - time.Millisecond, true}, {end - margin, false}, {end - time.Millisecond, false}} {
		p := NewParty(Settings{Servers: 3, To: "x", Seed: 1})
		s := p.newSession("u")
		s.ttl, s.clientEnd = ttl, end
		p.sessions["u"] = s
		for i := range s.seats {
			s.seats[i] = seat{joined: true, promise: end}
		}
		c := p.newClaim(s, 1, 0)
		c.record = p.recordOf(&lockkeeper.Want{Targets: want("a", 0).Targets, Wait: lockkeeper.Forever}, 1)
		for server := range 3 {
			st := &ClaimState{ID: 1, State: lockkeeper.Held, Vote: 5, Counter: 5}
			p.apply(c, server, evidence{state: st, now: 1, sent: end - ttl, got: test.at, reply: true})
			p.decide(c, test.at)
		}
		if got := c.phase == held; got != test.granted {
			t.Errorf("%s before the promises end: granted %v, want %v", end-test.at, got, test.granted)
		}
	}
}

func TestVotesDoNotDependOnTheOrderOfStates(t *testing.T) {
	states := []ClaimState{
		{ID: 1, State: lockkeeper.Held, Vote: 5, Counter: 5},
		{ID: 1, State: lockkeeper.Waiting, Counter: 6},
		{ID: 1, State: lockkeeper.Held, Vote: 7, Counter: 7},
	}
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		p := NewParty(Settings{Servers: 1, To: "x", Seed: 1})
		c := p.newClaim(p.newSession("u"), 1, 0)
		for _, i := range order {
			p.apply(c, 0, evidence{state: &states[i], now: Micros(i + 1), sent: time.Second, got: time.Second})
		}
		if b := &c.at[0]; !b.counts() || b.vote != 7 || b.gone != 6 {
			t.Errorf("order %v: vote %d, gone %d", order, b.vote, b.gone)
		}
	}
}

func TestStateAfterTheClockWentBackCounts(t *testing.T) {
	p := NewParty(Settings{Servers: 1, To: "x", Seed: 1})
	c := p.newClaim(p.newSession("u"), 1, 0)
	ask := &Ask{By: "v.1", Reason: lockkeeper.Stolen, End: 2000}
	asked := ClaimState{ID: 1, State: lockkeeper.Held, Vote: 5, Counter: 5, Ask: ask}
	p.apply(c, 0, evidence{state: &asked, now: 1000, sent: 10, got: 20, reply: true})
	withdrawn := ClaimState{ID: 1, State: lockkeeper.Held, Vote: 5, Counter: 5}
	p.apply(c, 0, evidence{state: &withdrawn, now: 500, sent: 15, got: 30, reply: true})
	if c.at[0].ask == nil {
		t.Error("an answer that may be older withdraws the ask")
	}
	p.apply(c, 0, evidence{state: &withdrawn, now: 600, sent: 40, got: 50, reply: true})
	if c.at[0].ask != nil {
		t.Error("an answer to a later request does not withdraw the ask")
	}
}

// A lease that servers without the vote renewed states no more than the servers with the vote promise.
func TestLeaseEndsWithThePromisesOfTheVotes(t *testing.T) {
	p := NewParty(Settings{Servers: 3, To: "x", Seed: 1})
	s := p.newSession("u")
	s.ttl, s.clientEnd = 10*time.Second, 4*time.Second
	p.sessions["u"] = s
	for i, promise := range []time.Duration{5 * time.Second, 13 * time.Second, 13 * time.Second} {
		s.seats[i] = seat{joined: true, promise: promise}
	}
	c := p.newClaim(s, 1, 0)
	c.phase, c.fence, c.at[0].vote, c.at[1].vote = held, 5, 5, 5
	if end, settled := p.leaseEnd(s, call{at: 3 * time.Second}, 3*time.Second); end != 5*time.Second || settled {
		t.Errorf("the lease ends at %s, settled %v, want 5s: server 1 promises no more", end, settled)
	}
}

// A server that refused a claim does not know how the hold at the others ended.
func TestEndOfAHoldIsNotTheRefusalOfAServer(t *testing.T) {
	for refuser := range 3 {
		s := newSim(t, 3, 2, 1)
		u, v := s.user(0, "u"), s.user(1, "v")
		s.apply(refuser, Request{
			Kind: Claim, Session: "v", Epoch: v.key.Epoch, ID: 9, Want: WantRecord{Paths: []string{"a"}, Ticket: 1},
		})
		s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
		w := want("a", lockkeeper.Forever)
		w.Priority, w.Steal, w.After = 1, lockkeeper.Take, time.Second
		s.must(v.claim(w), lockkeeper.Waiting, 0)
		s.run(2 * time.Second)
		s.must(u.latest(1), lockkeeper.Ended, lockkeeper.Stolen)
	}
}

// Two of three servers know that the former holder knows of its end. The grant is confirmed by their
// votes, also if the third one votes before.
func TestGrantInDoubtWaitsForTheOtherVotes(t *testing.T) {
	for seed := range uint64(20) {
		s := newSim(t, 3, 2, seed)
		u, next := s.user(0, "u"), s.user(1, "next")
		s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
		for i := range s.servers {
			s.apply(i, Request{Kind: Revoke, Session: "u", ID: 1, Force: true})
			if i > 0 {
				s.apply(i, Request{Kind: End, Session: "u", Epoch: u.key.Epoch, ID: 1, Reason: lockkeeper.Revoked})
			}
		}
		if st := s.must(next.claim(want("a", 0)), lockkeeper.Held, 0); st.Unconfirmed {
			t.Errorf("seed %d: unconfirmed", seed)
		}
	}
}

// A forced end that one server has executed does not make the party end the hold at the others: its
// client may not know, and a later grant there would not be marked as unconfirmed.
func TestForcedEndReleasesNoOtherVotes(t *testing.T) {
	s := newSim(t, 3, 2, 9)
	u, next := s.user(0, "u"), s.user(1, "next")
	s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
	s.apply(0, Request{Kind: Revoke, Session: "u", ID: 1, Force: true})
	s.run(100 * time.Millisecond)
	s.must(u.latest(1), lockkeeper.Ended, lockkeeper.Revoked)
	s.must(next.claim(want("a", 0)), lockkeeper.Ended, lockkeeper.TimedOut)
	if err := u.release(1); err != nil { // its client knows
		t.Fatal(err)
	}
	s.must(next.claim(want("a", 0)), lockkeeper.Held, 0)
}

// A party knows the end that servers stated a little early: by the way of the answer that had it.
func TestLapsedHoldLastsAlsoAfterSlowAnswer(t *testing.T) {
	each(t, 3, func(s *sim) {
		u, op, next := s.user(0, "u"), s.user(1, "op"), s.user(2, "next")
		ref := u.claim(want("a", 0)).Ref
		s.must(next.claim(want("a", lockkeeper.Forever)), lockkeeper.Waiting, 0)
		if a := s.await(op.p, op.p.End(s.now, op.key, lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: ref})); a.Err != nil {
			s.Fatal(a.Err)
		}
		s.run(8 * time.Second)
		next.renew()
		s.fastest = 300 * time.Millisecond
		asked := u.renew().Claims[0].Asked
		s.fastest = 0
		end := Micros(0) // of the ask at the first server that ends it, by the clock of the test
		for i, server := range s.servers {
			if at := server.find(ref).asks[0].End - s.clocks[i]; end == 0 || at < end {
				end = at
			}
		}
		s.run(end.duration() - s.now - 500*time.Millisecond)
		lapse := lockkeeper.Lapse{ID: 1, Reason: lockkeeper.Revoked, EndsAt: asked.EndsAt}
		if a := s.await(u.p, u.p.End(s.now, u.key, lockkeeper.Ending{Kind: lockkeeper.Lapsed, Lapse: lapse})); a.Err != nil {
			s.Fatal(a.Err)
		}
		s.run(end.duration() - s.now - time.Millisecond)
		if st := next.latest(1); st.State == lockkeeper.Held {
			s.Fatal("granted before the end that the servers stated")
		}
		s.run(time.Second)
		s.must(next.latest(1), lockkeeper.Held, 0)
		s.must(u.latest(1), lockkeeper.Ended, lockkeeper.Revoked)
	})
}

// The victim waits where the thief has the vote from the beginning, so it loses its majority with the
// first vote that it loses.
func TestVictimWithBareMajorityLearnsOfItsEnd(t *testing.T) {
	s := newSim(t, 3, 2, 7)
	u, v := s.user(0, "u"), s.user(1, "v")
	s.cut[link{u.p, 1}] = true
	u.claim(want("a", 0))
	w := want("a", lockkeeper.Forever)
	w.Priority, w.Steal, w.After = 1, lockkeeper.Take, time.Second
	s.must(v.claim(w), lockkeeper.Waiting, 0)
	s.cut[link{u.p, 1}] = false
	s.run(500 * time.Millisecond)
	s.cut[link{v.p, 2}] = true // it settles only when somebody asks it
	s.run(600 * time.Millisecond)
	s.must(v.latest(1), lockkeeper.Held, 0)
	s.must(u.latest(1), lockkeeper.Ended, lockkeeper.Stolen)
}
