package lockkeeper_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// stuckHandler blocks in Handle until it is released.
type stuckHandler struct {
	slog.Handler
	released chan struct{}
}

func (h stuckHandler) Handle(context.Context, slog.Record) error {
	<-h.released
	return nil
}

func (h stuckHandler) Enabled(context.Context, slog.Level) bool { return true }

// TestBlockedLoggerDoesNotDelayTheLoss: a handler that blocks, as one does that writes into a full
// pipe, must not keep the former holder's context alive while a thief is granted.
func TestBlockedLoggerDoesNotDelayTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memlock.New()
		h := stuckHandler{slog.DiscardHandler, make(chan struct{})}
		defer close(h.released)
		victim := lockkeeper.New(e, lockkeeper.Logger(slog.New(h)))
		defer victim.Close()
		thief := lockkeeper.New(e)
		defer thief.Close()
		stolen, err := victim.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := victim.Lock(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		hold, err := thief.Lock(t.Context(), "a", lockkeeper.WithPriority(1),
			lockkeeper.WithStealAfter(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if stolen.Context().Err() == nil {
			t.Error("two holders: the context of the stolen hold has not ended")
		}
		time.Sleep(2 * lockkeeper.DefaultTTL)
		if other.Context().Err() != nil {
			t.Errorf("the client did not renew while its logger was blocked: %v", other.Err())
		}
		if err := hold.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
