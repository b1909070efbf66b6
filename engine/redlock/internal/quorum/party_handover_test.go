package quorum

import (
	"errors"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Two processes use one session by turns, as two servers behind a load balancer do. A process whose
// session was taken over learns that by an Attach that follows its old epoch: from then on it refuses
// with the present epoch, and not with its own until the session would have ended.
func TestPartiesTakeASessionOverByTurns(t *testing.T) {
	s := newSim(t, 3, 2, 11)
	attach := func(p *Party, follows uint64) (uint64, uint64) {
		t.Helper()
		a := s.await(p, p.Attach(s.now, lockkeeper.Session{
			ID: "shared", TTL: time.Minute, Epoch: follows, Named: []uint64{1}, Outlive: true,
		}))
		if a.Err == nil {
			return a.Lease.Key.Epoch, 0
		}
		var refused *lockkeeper.Error
		if !errors.Is(a.Err, lockkeeper.ErrSession) || !errors.As(a.Err, &refused) {
			t.Fatal(a.Err)
		}
		return 0, refused.Epoch
	}
	for turn := range 10 {
		p, began := s.parties[turn%2], s.now
		follows, tries := uint64(0), 0
		for {
			epoch, present := attach(p, follows)
			if tries++; epoch != 0 {
				break
			}
			if tries > 4 {
				t.Fatalf("turn %d: refused %d times, now with epoch %d", turn, tries, present)
			}
			if follows = present; tries%2 == 0 {
				follows = 0 // a caller that knows nothing begins again after two refusals
			}
		}
		if took := s.now - began; took > time.Second {
			t.Errorf("turn %d took %s", turn, took)
		}
	}
}

// One server has lost a session, and its Restore failed. Another party takes the session over there and at
// a second server, before the third one hears of it. The former party is refused as soon as it asks: from
// the second server it hears of the takeover, and without that promise it can't restore the session at
// the first one.
func TestFormerPartyIsRefusedWhileAServerLacksItsSession(t *testing.T) {
	for _, known := range []bool{false, true} { // the takeover, before the Renew
		s := newSim(t, 3, 2, 11)
		u := s.user(0, "u")
		s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
		s.servers[2] = NewServer(Limits{})
		renewal := u.p.Renew(s.now, u.key)
		s.collect(u.p)
		seat := &u.p.sessions["u"].seats[2]
		for range 1000 {
			if s.run(time.Microsecond); seat.restoring {
				break
			}
		}
		s.cut[link{u.p, 2}] = true
		s.await(u.p, renewal)
		heir := &user{sim: s, p: s.parties[1], key: u.key, id: u.id, ttl: u.ttl}
		s.cut[link{heir.p, 1}] = true
		heir.attach(1)
		s.cut[link{u.p, 2}] = false
		if !seat.absent || seat.restoring {
			t.Fatalf("the Restore did not fail: %+v", *seat)
		}
		if known {
			u.p.End(s.now, u.key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1})
			s.collect(u.p)
			s.run(10 * time.Millisecond)
		}
		began := s.now
		if a := s.await(u.p, u.p.Renew(s.now, u.key)); !errors.Is(a.Err, lockkeeper.ErrSession) {
			t.Errorf("the former party gets %+v", a)
		}
		if took := s.now - began; took > 100*time.Millisecond {
			t.Errorf("it is refused after %s", took)
		}
	}
}

// A server that comes late has no session yet. The party uses it after two round trips, and does not wait
// for the next Restore: the first one is not sent before the server has said that it lacks the session.
func TestServerThatComesLateJoinsAtOnce(t *testing.T) {
	s := newSim(t, 3, 1, 11)
	p := s.parties[0]
	p.Down(s.now, 2)
	u := s.user(0, "u")
	s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
	p.Up(s.now, 2)
	s.collect(p)
	s.run(10 * time.Millisecond)
	session := p.sessions["u"]
	if seat := &session.seats[2]; !seat.joined || !session.claims[1].at[2].counts() {
		t.Errorf("after 10 ms the server that came late is not used: %+v", *seat)
	}
}

// A server answers an Attach late, when a majority has accepted it: another party has taken the session
// over there. What it promised before, and its votes, are void.
func TestLateRefusalOfAnAttachVoidsTheVotesOfItsServer(t *testing.T) {
	s := newSim(t, 3, 2, 11)
	u := s.user(0, "u")
	s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
	s.run(10 * time.Millisecond)
	heir := &user{sim: s, p: s.parties[1], key: u.key, id: u.id, ttl: u.ttl}
	s.cut[link{heir.p, 0}], s.cut[link{heir.p, 1}] = true, true
	heir.p.base.last = u.key.Epoch + 1e9 // its epoch is above that of the next Attach
	heir.p.Attach(s.now, lockkeeper.Session{ID: "u", TTL: u.ttl, Epoch: u.key.Epoch})
	s.collect(heir.p)
	s.run(10 * time.Millisecond)
	call := u.p.Attach(s.now, lockkeeper.Session{ID: "u", TTL: u.ttl, Epoch: u.key.Epoch, Named: []uint64{1}})
	var late Send
	for _, send := range u.p.Output().Sends {
		if send.Server == 2 {
			late = send
			continue
		}
		u.p.Reply(s.now, send.Number, s.now, s.apply(send.Server, send.Request))
	}
	if a := s.await(u.p, call); a.Err != nil {
		t.Fatal(a.Err)
	}
	u.p.Reply(s.now, late.Number, s.now, s.apply(2, late.Request))
	session := u.p.sessions["u"]
	if session.seats[2].promise != 0 || session.claims[1].at[2].counts() {
		t.Errorf("the server that another party has still promises %s, and its vote counts: %v",
			session.seats[2].promise-s.now, session.claims[1].at[2].counts())
	}
}

// Two servers refuse an Attach with one epoch, and the answer of the third, with a higher one, is on its way.
// The refusal names the higher one: an Attach that follows the other would be refused again.
func TestRefusalOfAnAttachNamesTheHighestEpoch(t *testing.T) {
	const more = 5
	for _, c := range []struct {
		name  string
		third func(s *sim, send Send)
		more  uint64
	}{
		{"its answer arrives", func(s *sim, send Send) {
			s.now += slowServer / 2
			s.parties[1].Reply(s.now, send.Number, s.now, s.apply(2, send.Request))
		}, more},
		{"it does not answer", func(s *sim, _ Send) {
			s.now += slowServer
			s.parties[1].Tick(s.now)
		}, 0},
		{"it fails", func(s *sim, send Send) { s.parties[1].Failed(s.now, send.Number, false) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSim(t, 3, 2, 11)
			u, p := s.user(0, "u"), s.parties[1]
			s.run(10 * time.Millisecond)
			s.servers[2].sessions["u"].epoch += more
			call := p.Attach(s.now, lockkeeper.Session{ID: "u", TTL: u.ttl})
			var third Send
			for _, send := range p.Output().Sends {
				if send.Server == 2 {
					third = send
					continue
				}
				p.Reply(s.now, send.Number, s.now, s.apply(send.Server, send.Request))
			}
			if s.answered(p, call) {
				t.Fatal("refused before the third server has answered")
			}
			c.third(s, third)
			if !s.answered(p, call) {
				t.Fatal("not refused")
			}
			var refused *lockkeeper.Error
			if err := s.answers[p][call].Err; !errors.As(err, &refused) || refused.Epoch != u.key.Epoch+c.more {
				t.Errorf("refused with %v, want epoch %d", err, u.key.Epoch+c.more)
			}
		})
	}
}

// One server has the session for another party, and a second one goes down while a Renew is on its way to it.
// The party can't reach a majority any more, and says so at once.
func TestFormerPartyIsRefusedWhenAServerGoesDown(t *testing.T) {
	s := newSim(t, 3, 2, 11)
	u := s.user(0, "u")
	s.run(10 * time.Millisecond)
	heir := &user{sim: s, p: s.parties[1], key: u.key, id: u.id, ttl: u.ttl}
	s.cut[link{heir.p, 0}], s.cut[link{heir.p, 2}] = true, true
	heir.p.Attach(s.now, lockkeeper.Session{ID: "u", TTL: u.ttl, Epoch: u.key.Epoch})
	s.collect(heir.p)
	s.run(10 * time.Millisecond)
	call := u.p.Renew(s.now, u.key)
	var last Send
	for _, send := range u.p.Output().Sends {
		if send.Server == 2 {
			last = send
			continue
		}
		u.p.Reply(s.now, send.Number, s.now, s.apply(send.Server, send.Request))
	}
	if s.answered(u.p, call) {
		t.Fatalf("answered before the third server: %+v", s.answers[u.p][call])
	}
	u.p.Down(s.now, 2)
	u.p.Failed(s.now, last.Number, false)
	if !s.answered(u.p, call) || !errors.Is(s.answers[u.p][call].Err, lockkeeper.ErrSession) {
		t.Errorf("the answer is %+v, want ErrSession", s.answers[u.p][call])
	}
}

// Another party takes a session over and leaves it, as a second server does that ends an HTTP claim. The
// former party is refused as soon as it asks.
func TestFormerPartyIsRefusedAfterTheSessionWasLeft(t *testing.T) {
	each(t, 2, func(s *sim) {
		u := s.user(0, "u")
		s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
		heir := &user{sim: s, p: s.parties[1], key: u.key, id: u.id, ttl: u.ttl}
		heir.attach(1)
		if a := s.await(heir.p, heir.p.End(s.now, heir.key, lockkeeper.Ending{Kind: lockkeeper.Leave})); a.Err != nil {
			s.Fatal(a.Err)
		}
		s.run(10 * time.Millisecond)
		began := s.now
		if a := s.await(u.p, u.p.Renew(s.now, u.key)); !errors.Is(a.Err, lockkeeper.ErrSession) {
			s.Errorf("the former party gets %+v", a)
		}
		if took := s.now - began; took > 100*time.Millisecond {
			s.Errorf("it is refused after %s", took)
		}
	})
}

// The ask of a thief was stated seconds ago, and no server answers since. The end that the client is told then is
// nearer by what the clocks may have drifted: its own margin is of the time that is left.
func TestAskedEndCoversTheDriftSinceItWasStated(t *testing.T) {
	s := newSim(t, 3, 2, 9)
	u, v := s.user(0, "u"), s.user(1, "v")
	first := want("a", 0)
	first.ID = 1
	u.claim(first)
	w := want("a", lockkeeper.Forever)
	w.Priority, w.Steal, w.After = 1, lockkeeper.Take, 8*time.Second
	s.must(v.claim(w), lockkeeper.Waiting, 0)
	s.run(10 * time.Millisecond)
	for i := range 3 {
		s.cut[link{u.p, i}] = true
	}
	s.run(5 * time.Second)
	asked := s.must(u.claim(first), lockkeeper.Held, 0).Asked
	if asked == nil || asked.Left > 2950*time.Millisecond || asked.Left < 2800*time.Millisecond {
		t.Errorf("asked %+v, want at most 2.95s of the 3s", asked)
	}
}

// When a client may have stopped, the end that it was told stands. A newer statement of a server makes that
// end no later: it was computed from the old one.
func TestAskedEndStandsWhenTheClientMayHaveStopped(t *testing.T) {
	s := newSim(t, 3, 2, 9)
	u, v := s.user(0, "u"), s.user(1, "v")
	first := want("a", 0)
	first.ID = 1
	u.claim(first)
	w := want("a", lockkeeper.Forever)
	w.Priority, w.Steal, w.After = 1, lockkeeper.Take, 8*time.Second
	s.must(v.claim(w), lockkeeper.Waiting, 0)
	s.run(10 * time.Millisecond)
	for i := range 3 {
		s.cut[link{u.p, i}] = true
	}
	s.run(8*time.Second - lockkeeper.Margin(u.ttl))
	told := func() time.Duration {
		asked := s.must(u.claim(first), lockkeeper.Held, 0).Asked
		if asked == nil {
			t.Fatal("u is not asked")
		}
		return s.now + asked.Left
	}
	before := told()
	clear(s.cut)
	u.renew()
	if after := told(); after > before {
		t.Errorf("u was told an end, and then one %v later", after-before)
	}
}
