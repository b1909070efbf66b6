package sqllock

import (
	"context"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A claim that its own session has ended leaves a row only while there is a watcher in any process,
// so that watchers see how it ended.
func TestEndedRowsAreKeptForWatchers(t *testing.T) { onEach(t, endsAreKeptForFollowers) }

func endsAreKeptForFollowers(t *testing.T, url string) {
	var engines []*Engine
	for range 2 {
		e, err := Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		engines = append(engines, e)
	}
	e, db := engines[0], opened(t, url)
	lease, err := e.Attach(t.Context(), lockkeeper.Session{ID: "worker", TTL: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	key := lease.Key
	hold := func(id uint64) {
		t.Helper()
		want := lockkeeper.Want{ID: id, Targets: []lockkeeper.Target{{Path: "a", Mode: lockkeeper.ModeExclusive}}}
		if st, err := e.Claim(t.Context(), key, want); err != nil || st.State != lockkeeper.Held {
			t.Fatal(st, err)
		}
	}
	release := func(id uint64) {
		t.Helper()
		key.LowestOpen = id + 1
		if err := e.End(t.Context(), key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	rows := func() (n int) {
		t.Helper()
		if err := db.pool.QueryRowContext(t.Context(), db.sql(`SELECT count(*) FROM {claims}`)).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	hold(1)
	release(1)
	if n := rows(); n != 0 {
		t.Errorf("%d rows are left of a claim that nobody asks about", n)
	}
	hold(2)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for st, err := range engines[1].List(ctx, lockkeeper.Query{Follow: true}) {
		switch {
		case err != nil:
			t.Fatal(err)
		case st.State == lockkeeper.Held:
			release(2)
			continue
		case st.Reason != lockkeeper.Released:
			t.Errorf("the follower was told %s (%s), want that it was released", st.State, st.Reason)
		}
		break
	}
	if ctx.Err() != nil {
		t.Error("the follower never heard of the end")
	}
	if n := rows(); n != 1 {
		t.Errorf("%d rows while somebody follows, want the one that ended", n)
	}
}
