package keeper

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// The keeper forgets sessions that expired, and no others.
func TestKeeperForgetsExpiredSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		k := New(lockkeeper.Guarantees{Features: lockkeeper.TableFeatures}, func() time.Duration { return time.Since(start) })
		defer k.Close()
		attach := func(id string, ttl time.Duration) {
			t.Helper()
			if _, err := k.Attach(t.Context(), lockkeeper.Session{ID: id, TTL: ttl}, func([]lockkeeper.Status) {}); err != nil {
				t.Fatal(err)
			}
		}
		attach("lives", time.Hour)
		for i := range 10_000 {
			attach(fmt.Sprint("dies ", i), lockkeeper.MinTTL)
			time.Sleep(time.Second / 10)
		}
		if n := k.sessions.Len(); n > 200 || k.sessions.Notify("lives") == nil {
			t.Errorf("the keeper has %d sessions", n)
		}
	})
}
