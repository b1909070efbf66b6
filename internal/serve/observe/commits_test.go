package observe

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// brokenGroup leaves freezes to Claim; the commits of all other claims fail.
type brokenGroup struct{ lockkeeper.Engine }

type brokenCommit struct{}

func (brokenCommit) Done() <-chan struct{} { return nil }
func (brokenCommit) Finish() error         { return lockkeeper.ErrUnavailable }

func (e brokenGroup) BeginOpen(ctx context.Context, s lockkeeper.Session, w lockkeeper.Want,
	notify func([]lockkeeper.Status)) (lockkeeper.Lease, lockkeeper.Commit, error) {
	return e.Engine.(lockkeeper.GroupCommitter).BeginOpen(ctx, s, w, notify)
}

func (e brokenGroup) BeginClaim(_ context.Context, _ lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status,
	lockkeeper.Commit, error) {
	if w.Freeze > 0 {
		return lockkeeper.Status{}, nil, lockkeeper.ErrNotBegun
	}
	return lockkeeper.Status{}, brokenCommit{}, nil
}

func (e brokenGroup) BeginRenew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, lockkeeper.Commit, error) {
	lease, err := e.Renew(ctx, k)
	return lease, nil, err
}

func (e brokenGroup) BeginEnd(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending) (lockkeeper.Commit,
	error) {
	return nil, e.End(ctx, k, ending)
}

func (e brokenGroup) BeginLeave(ctx context.Context, k lockkeeper.Key, _ uint64) (lockkeeper.Status,
	lockkeeper.Commit, error) {
	return lockkeeper.Status{}, nil, e.End(ctx, k, lockkeeper.Ending{Kind: lockkeeper.Leave})
}

// A call that is begun is counted once, and its error when it is finished. One that is not begun is
// not counted: its plain method is called.
func TestBegunCallsAreCounted(t *testing.T) {
	m := NewMetrics(Sources{})
	e := memlock.New()
	defer e.Close()
	group, ok := m.Counted(brokenGroup{e}).(lockkeeper.GroupCommitter)
	if !ok {
		t.Fatal("the counted engine begins no calls")
	}
	ctx, key := t.Context(), lockkeeper.Key{Session: "no such"}
	if _, _, err := group.BeginClaim(ctx, key, lockkeeper.Want{Freeze: time.Minute}); err != lockkeeper.ErrNotBegun {
		t.Errorf("a freeze is answered by %v", err)
	}
	_, commit, _ := group.BeginClaim(ctx, key, lockkeeper.Want{})
	if n := value(t, m, "lockkeeper_engine_errors_total", "unavailable"); n != "0" {
		t.Errorf("%s errors before the commit is finished", n)
	}
	if err := commit.Finish(); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("finished with %v", err)
	}
	if _, _, err := group.BeginRenew(ctx, key); !errors.Is(err, lockkeeper.ErrSession) {
		t.Errorf("a renewal is answered by %v", err)
	}
	if _, _, err := group.BeginOpen(ctx, lockkeeper.Session{ID: "s"}, lockkeeper.Want{}, nil); !errors.Is(err,
		lockkeeper.ErrInvalid) {
		t.Errorf("a session without a claim is answered by %v", err)
	}
	expect(t, m, `
		engine_calls_total claim: 1
		engine_calls_total open: 1
		engine_errors_total invalid: 1
		engine_calls_total renew: 1
		engine_errors_total unavailable: 1
		engine_errors_total session: 1`)
}
