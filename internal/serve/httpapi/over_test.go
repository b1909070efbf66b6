package httpapi

import (
	"errors"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// An engine lists the end of a hold without its fence, as one does that keeps no more of it. The answer says
// that the claim is over, and not that the lock is taken.
func TestEndedHoldWithoutItsFenceIsLost(t *testing.T) {
	for why, want := range map[lockkeeper.Reason]error{
		lockkeeper.Released:  lockkeeper.ErrLost,
		lockkeeper.Yielded:   lockkeeper.ErrLost,
		lockkeeper.Stolen:    lockkeeper.ErrLost,
		lockkeeper.Overdue:   lockkeeper.ErrLost,
		lockkeeper.Cancelled: lockkeeper.ErrLost,
		lockkeeper.TimedOut:  lockkeeper.ErrNotAcquired,
	} {
		if err := new(claimSession).over(lockkeeper.Status{State: lockkeeper.Ended, Reason: why}); !errors.Is(err, want) {
			t.Errorf("ended as %s: %v, want %v", why, err, want)
		}
	}
}
