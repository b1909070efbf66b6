package quorum

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A party that has measured the servers by slow exchanges alone gives tickets that are ahead of their
// clocks. Yet a request that is sent after the party has answered goes behind.
func TestAnsweredWaiterKeepsItsPlaceAfterSlowMeasurement(t *testing.T) {
	each(t, 3, func(s *sim) {
		const slow, fast = 300 * time.Millisecond, 500 * time.Microsecond
		s.slowest = slow
		for k := range s.servers {
			s.parties[0].Lost(s.now, k)
			s.parties[0].Up(s.now, k)
		}
		first := s.user(0, "first")
		s.slowest = fast
		s.run(slow)
		holder, next := s.user(2, "holder"), s.user(1, "next")
		holder.claim(want("a", 0))
		s.must(first.claim(want("a", lockkeeper.Forever)), lockkeeper.Waiting, 0)
		s.must(next.claim(want("a", lockkeeper.Forever)), lockkeeper.Waiting, 0)
		if err := holder.release(1); err != nil {
			s.Fatal(err)
		}
		s.run(100 * time.Millisecond)
		s.must(first.latest(1), lockkeeper.Held, 0)
		if st := next.latest(1); st.State == lockkeeper.Held {
			s.Errorf("the later request goes first: %+v", st)
		}
	})
}

// A waiting claim has the votes of a majority, and one of them is about to be taken by a thief. A renewal
// could not keep that vote, so the party sends none.
func TestVoteThatAThiefTakesIsNotRenewed(t *testing.T) {
	s := newSim(t, 3, 2, 11)
	holder, u := s.user(0, "holder"), s.user(1, "u")
	s.must(holder.claim(want("a", 0)), lockkeeper.Held, 0)
	s.must(u.claim(want("a", lockkeeper.Forever)), lockkeeper.Waiting, 0)
	c := u.p.sessions["u"].claims[u.id]
	for i := range 2 {
		c.at[i].vote = c.at[i].gone + 1
	}
	c.at[1].askEnd = s.now + lockkeeper.Margin(u.ttl)/2
	clear(s.sends)
	u.p.decide(c, s.now)
	s.collect(u.p)
	s.run(lockkeeper.Margin(u.ttl) / 4)
	if n := s.sends[Renew]; n != 0 {
		t.Errorf("%d renewals were sent for a vote that they can't keep", n)
	}
}

// A server still has a vote that this party returned. The party returns it once more if the first Return
// was lost, but not if the server refused it because the claim has lapsed there.
func TestVoteOfALapsedClaimIsReturnedOnce(t *testing.T) {
	forever := want("a", lockkeeper.Forever)
	for lapsed, returns := range map[bool]int{false: 1, true: 0} {
		s := newSim(t, 3, 2, 11)
		holder, u := s.user(0, "holder"), s.user(1, "u")
		s.must(holder.claim(forever), lockkeeper.Held, 0)
		s.must(u.claim(forever), lockkeeper.Waiting, 0)
		c := u.p.sessions["u"].claims[u.id]
		b := &c.at[1]
		b.vote, b.gone, b.known, b.returnAt = 1, 1, true, s.now-2
		b.stateSent, b.state = s.now-1, &ClaimState{Vote: 1, Lapsed: lapsed}
		clear(s.sends)
		u.p.decide(c, s.now)
		s.collect(u.p)
		if n := s.sends[Return]; n != returns {
			t.Errorf("lapsed %t: %d Returns, want %d", lapsed, n, returns)
		}
	}
}
