package sqllock

import (
	"context"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A holder whose row was removed by hand learns that from its next renewal.
func TestHolderWithoutARow(t *testing.T) {
	url := newPostgres(t)
	e, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	told := make(chan lockkeeper.Status, 8)
	lease, err := e.Attach(t.Context(), lockkeeper.Session{ID: "holder", TTL: time.Minute}, func(all []lockkeeper.Status) {
		for _, st := range all {
			told <- st
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	want := lockkeeper.Want{
		ID:      1,
		Targets: []lockkeeper.Target{{Path: "a", Mode: lockkeeper.ModeExclusive}},
		Wait:    lockkeeper.Forever,
	}
	if st, err := e.Claim(t.Context(), lease.Key, want); err != nil || st.State != lockkeeper.Held {
		t.Fatal(st, err)
	}
	opened(t, url).mustExec(t, `DELETE FROM {claims}`)
	if _, err := e.Renew(t.Context(), lease.Key); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		select {
		case st := <-told:
			if st.State == lockkeeper.Ended && st.Reason == lockkeeper.Revoked {
				return
			}
		case <-ctx.Done():
			t.Fatal("the holder was not told that its row is gone")
		}
	}
}
