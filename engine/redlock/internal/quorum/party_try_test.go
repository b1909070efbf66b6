package quorum

import (
	"slices"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// releaseAt releases claim 1 of u, and brings its end to the given servers alone. It returns the call, and
// the requests to the others.
func (u *user) releaseAt(servers ...int) (call CallID, rest []Send) {
	call = u.p.End(u.now, u.key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1})
	for _, send := range u.p.Output().Sends {
		if slices.Contains(servers, send.Server) {
			u.deliverNow(send)
		} else {
			rest = append(rest, send)
		}
	}
	return call, rest
}

// deliverNow brings a request to its server, and the reply back.
func (u *user) deliverNow(send Send) {
	u.p.Reply(u.now, send.Number, u.now, u.apply(send.Server, send.Request))
	u.collect(u.p)
}

// answered reports whether a call has its answer.
func (s *sim) answered(p *Party, call CallID) bool {
	s.collect(p)
	_, ok := s.answers[p][call]
	return ok
}

// A server is down from before a claim until after its release. It does not count for a confirmed release:
// of the two others that are up, one could refuse a try that comes next.
func TestReleaseIsConfirmedByServersThatAreUp(t *testing.T) {
	for _, comes := range []bool{false, true} { // the third server, before the second has executed the end
		s := newSim(t, 3, 1, 7)
		s.parties[0].Down(s.now, 2)
		u := s.user(0, "u")
		s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
		call, rest := u.releaseAt(0)
		if s.answered(u.p, call) {
			t.Error("confirmed by one server")
		}
		if comes {
			u.p.Up(s.now, 2)
		} else {
			u.deliverNow(rest[0])
		}
		if !s.answered(u.p, call) {
			t.Errorf("two servers are up without the claim, and its release is not confirmed; the third came: %v", comes)
		}
	}
}

// A party has just been opened, and one of three servers is still being connected. A release is confirmed
// that another server has not executed yet, so that server refuses a try. The try is decided by the
// server that is being connected.
func TestTryWaitsForServerThatIsBeingConnected(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(p *Party, now time.Duration)
		want lockkeeper.State
	}{
		{"it comes up", func(p *Party, now time.Duration) { p.Up(now, 2) }, lockkeeper.Held},
		{"it is down", func(p *Party, now time.Duration) { p.Down(now, 2) }, lockkeeper.Ended},
		{"it stays away", nil, lockkeeper.Ended},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSim(t, 3, 2, 7)
			fresh := NewParty(Settings{Servers: 3, To: "1", Seed: 3})
			s.parties[1], s.answers[fresh] = fresh, make(map[CallID]Answer)
			fresh.Up(s.now, 0)
			fresh.Up(s.now, 1)
			s.collect(fresh)
			s.run(10 * time.Millisecond)
			u, v := s.user(0, "u"), s.user(1, "v")
			s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
			s.run(10 * time.Millisecond)
			if call, _ := u.releaseAt(0, 2); !s.answered(u.p, call) {
				t.Fatal("the release is not confirmed by two of three servers")
			}
			try := want("a", 0)
			try.ID = 1
			call := v.p.Claim(s.now, v.key, try)
			s.collect(v.p)
			s.run(20 * time.Millisecond)
			if s.answered(v.p, call) {
				t.Fatalf("a try that one of three servers refused is answered: %+v", s.answers[v.p][call].Status)
			}
			began := s.now
			if c.then != nil {
				c.then(v.p, s.now)
			}
			if st := s.await(v.p, call).Status; st.State != c.want {
				t.Errorf("the try is %s (%s), want %s", st.State, st.Reason, c.want)
			}
			if took := s.now - began; c.then != nil && took > 50*time.Millisecond || took > decisive {
				t.Errorf("answered after %s", took)
			}
		})
	}
}

// A bound may be shorter than the way to the servers and back: a free lock is granted all the same.
func TestWaitShorterThanRoundTripGetsAFreeLock(t *testing.T) {
	each(t, 1, func(s *sim) {
		u := s.user(0, "u")
		s.fastest = 20 * time.Millisecond
		s.must(u.claim(want("a", time.Millisecond)), lockkeeper.Held, 0)
		s.must(u.claim(want("b c", time.Nanosecond)), lockkeeper.Held, 0)
	})
}

// A majority of the servers does not answer. A bounded wait ends, soon after its bound at the latest.
func TestBoundedWaitEndsWithoutAnswers(t *testing.T) {
	for _, wait := range []time.Duration{time.Millisecond, 2 * time.Second} {
		s := newSim(t, 3, 1, 7)
		u := s.user(0, "u")
		s.silent[0], s.silent[1] = true, true
		w, began := want("a", wait), s.now
		w.ID = 1
		a := s.await(u.p, u.p.Claim(s.now, u.key, w))
		s.must(a.Status, lockkeeper.Ended, lockkeeper.TimedOut)
		if took, most := s.now-began, max(wait, decisive)+timeoutPatience+2*time.Millisecond; took > most {
			t.Errorf("a wait of %s took %s, want %s at most", wait, took, most)
		}
	}
}
