package sqllock

import (
	"slices"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// A follower hears that a hold is over before it hears who got it next.
func TestFollowerHearsTheEndFirst(t *testing.T) {
	status := func(session string, state lockkeeper.State, change uint64) lockkeeper.Status {
		return lockkeeper.Status{Ref: lockkeeper.Ref{Session: session, ID: 1}, State: state, Change: change}
	}
	held, waiting := status("a", lockkeeper.Held, 1), status("b", lockkeeper.Waiting, 2)
	ended, granted := status("a", lockkeeper.Ended, 3), status("b", lockkeeper.Held, 4)
	last := map[subject]lockkeeper.Status{subjectOf(&held): held, subjectOf(&waiting): waiting}
	f := &follower{ended: map[subject]lockkeeper.Status{subjectOf(&ended): ended}}
	var heard []lockkeeper.State
	f.yieldChanges(last, []lockkeeper.Status{granted}, func(s lockkeeper.Status, _ error) bool {
		heard = append(heard, s.State)
		return true
	})
	if want := []lockkeeper.State{lockkeeper.Ended, lockkeeper.Held}; !slices.Equal(heard, want) {
		t.Errorf("heard %v, want %v", heard, want)
	}
}
