package keeper

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Sessions that end by themselves leave nothing behind, however many they are;
// those that live are told.
func TestForgetsWhomToTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		k := New(lockkeeper.Guarantees{Features: lockkeeper.AllFeatures}, func() time.Duration { return time.Since(start) })
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
		if n := len(k.notify); n > 200 || k.notify["lives"] == nil {
			t.Errorf("%d are kept to be told", n)
		}
	})
}
