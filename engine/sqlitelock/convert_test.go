package sqlitelock

import (
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// A conversion that was tried without effect, and whose answer was lost, is asked for
// again: also by a process that knows of it from the rows alone (R14, R16).
func TestUndoneConversionIsKnownFromRows(t *testing.T) {
	path := file(t)
	first, second := openReal(t, path), openReal(t, path)
	ctx := bounded(t)
	shared := func(id uint64) lockkeeper.Want {
		return lockkeeper.Want{ID: id, Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeShared}}}
	}
	keys := map[string]lockkeeper.Key{}
	for _, session := range []string{"a", "b"} {
		lease, err := first.Attach(ctx, lockkeeper.Session{ID: session, TTL: lockkeeper.DefaultTTL}, nil)
		if err != nil {
			t.Fatal(err)
		}
		keys[session] = lease.Key
		if st, err := first.Claim(ctx, lease.Key, shared(1)); err != nil || st.State != lockkeeper.Held {
			t.Fatalf("%s got %+v, %v; want a shared hold", session, st, err)
		}
	}
	upgrade := shared(1)
	upgrade.Revision, upgrade.Targets[0].Mode = 1, lockkeeper.ModeExclusive
	for _, e := range []*Engine{first, second, openReal(t, path)} {
		again := upgrade
		again.Targets = append([]lockkeeper.Target(nil), upgrade.Targets...)
		st, err := e.Claim(ctx, keys["a"], again)
		if err != nil || st.State != lockkeeper.Held || st.Grants[0].Mode != lockkeeper.ModeShared ||
			st.Reason != lockkeeper.TimedOut {
			t.Fatalf("got %+v, %v; want it held shared, the conversion timed out", st, err)
		}
	}
}
