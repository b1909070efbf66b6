package keeper_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// attaches is a log that keeps how many claims the latest attach listed.
type attaches struct {
	*oneCommit
	named, lapsed int
}

func (l *attaches) Append(c *table.Command, after table.Counters) *keeper.Commit {
	if c.Op == table.Attach {
		l.named, l.lapsed = len(c.Session.Named), len(c.Session.Lapsed)
	}
	return l.oneCommit.Append(c, after)
}

// What an attach lists of claims that are not there, or again and again, fills no log: else one
// client holds up all others with a few frames.
func TestLogHasOnlyTheClaimsOfAnAttachThatAreThere(t *testing.T) {
	ctx := context.Background()
	l := &attaches{oneCommit: &oneCommit{commit: keeper.NewCommit()}}
	l.commit.End(nil)
	k := keeper.NewLogged(lockkeeper.Guarantees{Name: "test", Features: lockkeeper.TableFeatures},
		func() time.Duration { return 0 }, table.New(), l)
	defer k.Close()
	notify := func([]lockkeeper.Status) {}
	s := lockkeeper.Session{ID: "s", TTL: time.Minute}
	lease, err := k.Attach(ctx, s, notify)
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range []lockkeeper.Path{"a", "b"} {
		want := lockkeeper.Want{ID: uint64(i + 1), Targets: []lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}}}
		if _, err := k.Claim(ctx, lease.Key, want); err != nil {
			t.Fatal(err)
		}
	}
	s.Epoch = lease.Key.Epoch
	for id := range uint64(1000) {
		s.Named = append(s.Named, 1, id)
		s.Lapsed = append(s.Lapsed,
			lockkeeper.Lapse{ID: 2, Reason: lockkeeper.Expired, EndsAt: 30 * time.Second},
			lockkeeper.Lapse{ID: id + 3, Reason: lockkeeper.Expired})
	}
	if lease, err = k.Attach(ctx, s, notify); err != nil {
		t.Fatal(err)
	}
	if l.named != 2 || l.lapsed != 1 {
		t.Errorf("the log has %d named and %d lapsed claims, want 2 and 1", l.named, l.lapsed)
	}
	if len(lease.Claims) != 2 || lease.Claims[0].Lapsed || !lease.Claims[1].Lapsed {
		t.Errorf("the lease lists %+v", lease.Claims)
	}
	if len(s.Named) != 2000 || len(s.Lapsed) != 2000 {
		t.Error("what the caller has was changed")
	}
}
