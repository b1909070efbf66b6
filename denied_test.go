package lockkeeper_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// A client that the engine denies stops waiting at its next renewal, and says that it was denied
// and not that the engine could not be reached. It keeps its holds until their deadline.
func TestDeniedClientStopsWaiting(t *testing.T) {
	netted(t, func(t *testing.T, _ *keeper.Keeper, open func(string) (*lockkeeper.Client, *wire)) {
		holder, wh := open("holder")
		waiter, ww := open("waiter")
		hold := must(t)(holder.Lock(background, "db"))
		done := began(func() (*lockkeeper.Hold, error) { return waiter.Lock(background, "db") })
		synctest.Wait()
		for _, w := range []*wire{wh, ww} {
			w.set(func() {
				w.before = func(context.Context, string, func()) error {
					return &lockkeeper.Error{Err: lockkeeper.ErrDenied, Detail: "the token is unknown"}
				}
			})
		}
		denied := time.Now()
		err := (<-done).err
		wantErr(t, err, lockkeeper.ErrDenied)
		if took := time.Since(denied); errors.Is(err, lockkeeper.ErrUnavailable) || took > lockkeeper.DefaultTTL/3 {
			t.Errorf("after %s: %v", took, err)
		}
		if hold.Err() != nil {
			t.Errorf("the hold is lost before its deadline: %v", hold.Err())
		}
		<-hold.Done()
		if took := time.Since(denied); took > lockkeeper.DefaultTTL || !errors.Is(hold.Err(), lockkeeper.ErrLost) {
			t.Errorf("after %s: %v", took, hold.Err())
		}
	})
}
