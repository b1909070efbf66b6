package redlock

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/link"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/memory"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
)

// unwilling is a link that stays up and, once it has been told, sends nothing.
type unwilling struct {
	link.Link
	refuses atomic.Bool
	calls   atomic.Int64
}

func (u *unwilling) Do(ctx context.Context, requests []quorum.Request) ([]quorum.Reply, error) {
	if !u.refuses.Load() {
		return u.Link.Do(ctx, requests)
	}
	u.calls.Add(1)
	return nil, link.ErrUnsent
}

// A request that can't be sent to a server that is up is tried again after a pause, and no more once the
// engine is closed.
func TestRequestsThatCannotBeSentArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, start := memory.New(1, 1), time.Now()
		u := &unwilling{Link: set.Links()[0]}
		e := newEngine(func() time.Duration { return time.Second + time.Since(start) }, []link.Link{u})
		if err := e.waitUsable(t.Context()); err != nil {
			t.Fatal(err)
		}
		lease, err := e.Attach(t.Context(), lockkeeper.Session{ID: "s", TTL: time.Minute}, nil)
		if err != nil {
			t.Fatal(err)
		}
		u.refuses.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want := lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}}}
		if st, err := e.Claim(ctx, lease.Key, want); err == nil {
			t.Errorf("granted by nobody: %+v", st)
		}
		if n := u.calls.Load(); n < 2 || n > 200 {
			t.Errorf("%d tries within a second", n)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}
