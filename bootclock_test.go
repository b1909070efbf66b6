package lockkeeper_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// By the default clock a client renews and ends leases in a bubble, whose time CLOCK_BOOTTIME
// ignores.
func TestDefaultClockCountsLeasesInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		k := keeper.New(lockkeeper.Guarantees{Name: "net", Features: lockkeeper.TableFeatures, Reach: lockkeeper.OnNetwork},
			func() time.Duration { return time.Since(start) })
		wa, wb := &wire{Engine: k}, &wire{Engine: k}
		a, b := lockkeeper.New(wa), lockkeeper.New(wb)
		defer k.Close()
		defer b.Close()
		defer a.Close()

		held := must(t)(a.Lock(background, "db"))
		time.Sleep(10 * ttl)
		if err := held.Err(); err != nil {
			t.Fatalf("the lease was not renewed: %v", err)
		}
		wa.set(func() {
			wa.before = func(ctx context.Context, _ string, _ func()) error { <-ctx.Done(); return ctx.Err() }
		})
		next := must(t)(b.Lock(background, "db"))
		if held.Err() == nil {
			t.Error("two clients hold it")
		}
		if next.Err() != nil {
			t.Error(next.Err())
		}
		wa.set(func() { wa.before = nil })
	})
}
