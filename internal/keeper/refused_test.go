package keeper_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// TestRefusedCommandDoesNotHideAGrant: the clock has passed a deadline when a call comes, before the
// timer fires, as after a suspension of the process. The call grants a claim, because time passes,
// and is refused itself, so its answer does not show the grant.
func TestRefusedCommandDoesNotHideAGrant(t *testing.T) {
	start, jump := time.Now(), time.Duration(0)
	g := lockkeeper.Guarantees{Name: "test", Features: lockkeeper.TableFeatures, NoExpiry: true}
	k := keeper.New(g, func() time.Duration { return time.Since(start) + jump })
	defer k.Close()
	attach := func(id string, ttl time.Duration, notify func([]lockkeeper.Status)) lockkeeper.Key {
		lease, err := k.Attach(t.Context(), lockkeeper.Session{ID: id, TTL: ttl}, notify)
		if err != nil {
			t.Fatal(err)
		}
		return lease.Key
	}
	granted := 0
	ann := attach("ann", time.Minute, nil)
	bob := attach("bob", 0, func(news []lockkeeper.Status) {
		for _, st := range news {
			if st.State == lockkeeper.Held && st.Ref.ID == 1 {
				granted++
			}
		}
	})
	claim(t, k, ann, want(1, "db"), lockkeeper.Held)
	claim(t, k, bob, want(1, "db"), lockkeeper.Waiting)
	jump = time.Hour
	if _, err := k.Claim(t.Context(), bob, want(1, "other")); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("a claim with the id of another one: %v, want ErrInvalid", err)
	}
	if granted != 1 {
		t.Errorf("the session was notified %d times of its grant, want once", granted)
	}
}
