package quorum

import (
	"errors"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// A session ends, and a rival is granted what it held: by servers that let the session expire, or that its
// party asked to end the hold. Meanwhile its client attaches again, through the same party or another one,
// and names the hold. Whichever of the requests arrive first, and whichever are lost, the hold has ended:
// it neither is held nor waits.
func TestNoClaimComesBackWhileItsSessionEnds(t *testing.T) {
	for seed := range testmode.Seeds(t, testmode.Pick(3000, 60_000)) {
		if t.Failed() {
			return
		}
		attachAsItEnds(t, seed)
	}
}

func attachAsItEnds(t *testing.T, seed uint64) {
	s := newSim(t, 3, 3, seed)
	s.slowest = []time.Duration{500 * time.Microsecond, 5 * time.Millisecond, 30 * time.Millisecond}[s.random.IntN(3)]
	u, v := &user{sim: s, p: s.parties[0], ttl: time.Second}, s.user(1, "v")
	u.key.Session = "u"
	u.attach()
	first := u.claim(want("a", time.Second))
	u.must(first, lockkeeper.Held, 0)
	s.must(v.claim(want("a", lockkeeper.Forever)), lockkeeper.Waiting, 0)
	if s.random.IntN(2) == 0 { // the servers end the session at different times
		s.cut[link{u.p, s.random.IntN(3)}] = true
		s.run(time.Duration(s.random.Int64N(int64(100 * time.Millisecond))))
		u.renew()
		clear(s.cut)
	}
	s.lose = []float64{0, 0, 0.1}[s.random.IntN(3)]
	for granted := s.now + 5*time.Second; v.latest(1).State != lockkeeper.Held; s.run(time.Millisecond) {
		if s.now > granted {
			t.Fatalf("seed %d: the session of the holder has ended, and its rival is not granted", seed)
		}
	}
	s.run(time.Duration(s.random.Int64N(int64(s.slowest))))
	heir := &user{sim: s, p: s.parties[2*s.random.IntN(2)], key: u.key, id: u.id, ttl: u.ttl}
	for _, st := range heir.resume(1).Claims {
		if st.State != lockkeeper.Ended {
			t.Errorf("replay: %s\nthe lease says that the claim is %s: %+v", testmode.Replay(t, seed), st.State, st)
		}
	}
	s.lose = 0
	clear(s.sends)
	for range 10 {
		heir.renew()
		s.run(100 * time.Millisecond)
	}
	if st := heir.latest(1); st.State == lockkeeper.Waiting || st.State == lockkeeper.Held {
		t.Errorf("replay: %s\nthe client is notified that the claim is %s: %+v", testmode.Replay(t, seed), st.State, st)
	}
	s.must(v.latest(1), lockkeeper.Held, 0)
	for kind, n := range s.sends { // order does not matter: each is judged alone
		if n > 100 {
			t.Errorf("replay: %s\n%d requests %s within a second", testmode.Replay(t, seed), n, kindNames[kind])
		}
	}
}

// resume attaches again, after the epoch that the servers state. It repeats an Attach that has no answer after
// a TTL.
func (u *user) resume(named ...uint64) lockkeeper.Lease {
	u.Helper()
	for range 20 {
		call := u.p.Attach(u.now, lockkeeper.Session{
			ID: u.key.Session, TTL: u.ttl, Epoch: u.key.Epoch, Named: named,
		})
		u.collect(u.p)
		a, answered := u.answers[u.p][call]
		for end := u.now + u.ttl; !answered && u.now < end; a, answered = u.answers[u.p][call] {
			u.run(time.Millisecond)
		}
		var refused *lockkeeper.Error
		switch {
		case !answered:
			u.p.Abandon(u.now, call)
		case a.Err == nil:
			u.key = a.Lease.Key
			return a.Lease
		case errors.As(a.Err, &refused) && refused.Epoch != 0:
			u.key.Epoch = refused.Epoch
		default:
			u.Fatalf("attach %s: %v", u.key.Session, a.Err)
		}
	}
	u.Fatalf("attach %s is always refused", u.key.Session)
	return lockkeeper.Lease{}
}

// A session ended at two of three servers, and its party does not know. An Attach through the same party
// ends its claims: the hold and the wait.
func TestAttachEndsClaimsOfASessionThatAMajorityEnded(t *testing.T) {
	for seed := range uint64(20) {
		s := newSim(t, 3, 2, seed)
		u, v := s.user(0, "u"), s.user(1, "v")
		s.must(v.claim(want("b", 0)), lockkeeper.Held, 0)
		s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
		s.must(u.claim(want("b", lockkeeper.Forever)), lockkeeper.Waiting, 0)
		for i := range 3 {
			if i != int(seed%3) {
				s.servers[i].sessions["u"].until = s.clock(i)
			}
		}
		lease := u.attach(1, 2)
		if len(lease.Claims) != 2 {
			t.Fatalf("seed %d: claims %+v, want both ends", seed, lease.Claims)
		}
		for _, st := range lease.Claims {
			s.must(st, lockkeeper.Ended, lockkeeper.Expired)
		}
		v.release(1)
		s.run(time.Second)
		for id := range uint64(2) {
			if st := u.latest(id + 1); st.State != lockkeeper.Ended && st.State != 0 {
				t.Errorf("seed %d: it came back: %+v", seed, st)
			}
		}
	}
}

// A session moves to a second party, which releases its hold where it can. The first party reached one server
// only meanwhile. When the session comes back, that party does not rely on the votes that it once saw.
func TestPartyForgetsWhatItKnewWhenItsSessionComesBack(t *testing.T) {
	s := newSim(t, 3, 2, 9)
	u := s.user(0, "u")
	s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
	s.cut[link{u.p, 1}], s.cut[link{u.p, 2}] = true, true
	heir := &user{sim: s, p: s.parties[1], key: u.key, id: u.id, ttl: u.ttl}
	s.must(heir.attach(1).Claims[0], lockkeeper.Held, 0)
	u.p.Renew(s.now, u.key)
	s.collect(u.p)
	s.run(10 * time.Millisecond)
	if u.p.sessions["u"] == nil {
		t.Fatal("one server suffices to take the session from its party")
	}
	s.cut[link{heir.p, 2}] = true
	heir.key.LowestOpen = 2
	if err := heir.release(1); err != nil {
		t.Fatal(err)
	}
	clear(s.cut)
	u.key = heir.key
	for _, st := range u.resume(1).Claims {
		s.must(st, lockkeeper.Ended, lockkeeper.Expired)
	}
	s.run(time.Second)
	if st := u.latest(1); st.State == lockkeeper.Held || st.State == lockkeeper.Waiting {
		t.Errorf("it came back: %+v", st)
	}
}

// A party dies whose hold has the votes of two servers, and one of these is away. The third one voted for a rival,
// which goes first in the order of queues. The heir finds one vote for the hold. It keeps that vote until the end that
// the client knows: the client may not get the answer to its Attach.
func TestTakeoverReturnsNoVoteOfAHold(t *testing.T) {
	s := newSim(t, 3, 3, 9)
	u, v := s.user(0, "u"), s.user(1, "v")
	s.cut[link{v.p, 0}], s.cut[link{v.p, 2}] = true, true
	w := want("a", lockkeeper.Forever)
	w.ID = 1
	v.p.Claim(s.now, v.key, w)
	s.collect(v.p)
	s.run(10 * time.Millisecond)
	s.must(u.claim(want("a", time.Second)), lockkeeper.Held, 0)
	end := s.now + u.renew().TTL
	clear(s.cut)
	for i := range 3 {
		s.cut[link{u.p, i}] = true
	}
	s.dead[2] = true
	heir := &user{sim: s, p: s.parties[2], key: u.key, id: u.id, ttl: u.ttl}
	s.must(heir.attach(1).Claims[0], lockkeeper.Waiting, 0)
	for s.now < end-lockkeeper.Margin(u.ttl) {
		if st := v.latest(1); st.State == lockkeeper.Held {
			t.Fatalf("the rival holds %s before the end that the holder knows", end-s.now)
		}
		heir.renew()
		v.renew()
		s.run(100 * time.Millisecond)
	}
	for range 4 {
		s.run(2 * time.Second)
		heir.renew()
		v.renew()
	}
	s.must(v.latest(1), lockkeeper.Held, 0)
}

// The clocks of the servers differ by seconds, and the heir knows other servers than the former party did, whose
// clocks are behind. Its statuses are newer for the client all the same.
func TestHeirStatesNewerChanges(t *testing.T) {
	s := newSim(t, 3, 2, 9)
	heirs := s.parties[1]
	s.clocks[1] += 5_000_000
	s.clocks[2] += 9_000_000
	s.run(time.Second)
	for i := range heirs.base.samples {
		for _, p := range s.parties {
			p.base.forget(i)
		}
	}
	for i := range 3 {
		s.parties[0].probe(i)
	}
	for i := range 2 {
		heirs.probe(i) // their median is the clock of server 0
	}
	s.cut[link{heirs, 2}] = true
	s.collect(s.parties[0])
	s.collect(heirs)
	s.run(10 * time.Millisecond)
	u := s.user(0, "u")
	held := s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
	heir := &user{sim: s, p: heirs, key: u.key, id: u.id, ttl: u.ttl}
	st := s.must(heir.attach(1).Claims[0], lockkeeper.Held, 0)
	if st.Change <= held.Change {
		t.Errorf("change %d after %d", st.Change, held.Change)
	}
}
