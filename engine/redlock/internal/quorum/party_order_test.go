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
