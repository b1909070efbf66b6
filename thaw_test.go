package lockkeeper_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// A thaw whose answer is lost is repeated. The repetition finds no freeze, which is what the caller
// wanted.
func TestThawWithLostAnswer(t *testing.T) {
	for _, lost := range []string{"answer", "request"} {
		netted(t, func(t *testing.T, _ *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
			c, w := open("operator")
			if err := c.Freeze(background, "db", time.Hour, lockkeeper.Label{}); err != nil {
				t.Fatal(err)
			}
			ends := 0
			once := func() error {
				if ends++; ends == 1 {
					return errCut
				}
				return nil
			}
			w.set(func() {
				if lost == "answer" {
					w.after = func(context.Context, string) error { return once() }
				} else {
					w.before = func(context.Context, string, func()) error { return once() }
				}
			})
			if err := c.Thaw(background, "db", lockkeeper.Label{}); err != nil {
				t.Errorf("the %s was lost: %v", lost, err)
			}
			if ends < 1 || lost == "request" && ends != 2 {
				t.Errorf("the %s was lost: %d requests", lost, ends)
			}
			w.set(func() { w.before, w.after = nil, nil })
			must(t)(c.TryLock(background, "db"))
			wantErr(t, c.Thaw(background, "db", lockkeeper.Label{}), lockkeeper.ErrNotHeld)
		})
	}
}
