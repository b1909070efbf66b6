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
