package redlock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/memory"
	"github.com/lockkeeper/lockkeeper/grab"
)

// A name is used through two processes by turns, as through two servers behind a load balancer. It
// keeps its hold, and no turn waits until the session of the turn before would have ended.
func TestNameIsUsedThroughProcessesByTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := memory.New(3, 1)
		var both [2]*grab.Reservations
		for i := range both {
			e := openInMemory(t, set)
			defer e.Close()
			both[i] = grab.New(e)
		}
		request := grab.Request{As: "me", Terms: grab.Terms{TTL: time.Minute},
			Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}}}
		var fence uint64
		for turn := range 10 {
			began := time.Now()
			a, err := both[turn%2].Grab(t.Context(), request)
			if err != nil || a.State != lockkeeper.Held {
				t.Fatalf("turn %d: %+v, %v", turn, a, err)
			}
			if fence != 0 && a.Fence != fence {
				t.Errorf("turn %d: the fence is %d, was %d", turn, a.Fence, fence)
			}
			fence = a.Fence
			if took := time.Since(began); took > time.Second {
				t.Errorf("turn %d took %s", turn, took)
			}
		}
	})
}
