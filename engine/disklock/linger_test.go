package disklock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// rowsOf returns options whose rows arrive on the channel: the number of entries of each.
func rowsOf(o options) (options, chan int) {
	rows := make(chan int, 1000)
	o.committed = func(r *row) { rows <- r.count }
	return o, rows
}

// TestReleaseSharesTheNextCommit: a release for which nobody waits is not written by itself at once,
// but together with the next claim.
func TestReleaseSharesTheNextCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, rows := rowsOf(options{careless: true, lingering: time.Hour})
		e := openHere(t, t.TempDir(), o)
		defer e.Close()
		a := attachTo(t, e, "ann")
		a.hold("db")
		for id := uint64(1); id < 10; id++ {
			synctest.Wait() // the writer has nothing to do
			for len(rows) > 0 {
				<-rows
			}
			if err := a.release(id); err != nil {
				t.Fatal(err)
			}
			if synctest.Wait(); len(rows) > 0 {
				t.Errorf("a row of %d entries after a release, want none", <-rows)
			}
			a.hold("db")
			if n := <-rows; n != 2 {
				t.Errorf("a row of %d entries, want the release and the claim", n)
			}
		}
	})
}

// TestLoneReleaseIsWritten: a release that nothing follows is written soon.
func TestLoneReleaseIsWritten(t *testing.T) {
	o, rows := rowsOf(options{})
	e := openHere(t, t.TempDir(), o)
	defer e.Close()
	a := attachTo(t, e, "ann")
	a.hold("db")
	for range 3 {
		<-rows
	}
	if err := a.release(1); err != nil {
		t.Fatal(err)
	}
	select {
	case <-rows:
	case <-time.After(patience):
		t.Fatal("the release is not written")
	}
}

// TestCloseWritesWhatLingers: a clean end loses no release.
func TestCloseWritesWhatLingers(t *testing.T) {
	dir := t.TempDir()
	e := openHere(t, dir, options{lingering: time.Hour})
	a := attachTo(t, e, "ann")
	a.hold("db")
	if err := a.release(1); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openHere(t, dir, options{})
	defer e.Close()
	attachTo(t, e, "bob").hold("db")
}

// TestNobodyWaitsForWhatLingers: all that waits for entries has them written at once: the next in
// line, a follower, a list, a renewal that shows what is not safe, and a refusal.
func TestNobodyWaitsForWhatLingers(t *testing.T) {
	e := openHere(t, t.TempDir(), options{lingering: time.Hour})
	defer e.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	granted := make(chan lockkeeper.Status, 100)
	lease, err := e.Attach(ctx, lockkeeper.Session{ID: "bob", TTL: time.Minute}, func(all []lockkeeper.Status) {
		for _, st := range all {
			granted <- st
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	bob := &asker{t: t, e: e, key: lease.Key}
	ann := attachTo(t, e, "ann")
	ann.hold("db")
	w := lockkeeper.Want{ID: 1, Wait: lockkeeper.Forever,
		Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}}}
	if st, err := e.Claim(ctx, bob.key, w); err != nil || st.State != lockkeeper.Waiting {
		t.Fatal(st.State, err)
	}
	if err := ann.release(1); err != nil {
		t.Fatal(err)
	}
	select {
	case st := <-granted:
		if st.State != lockkeeper.Held {
			t.Errorf("the next in line is notified of %v", st.State)
		}
	case <-ctx.Done():
		t.Fatal("the next in line is not notified")
	}
	if err := bob.release(1); err != nil {
		t.Fatal(err)
	}
	for _, err := range e.List(ctx, lockkeeper.Query{}) {
		if err != nil {
			t.Fatalf("a list: %v", err)
		}
	}
	ann.hold("x")
	if err := ann.release(2); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Renew(ctx, ann.key); err != nil {
		t.Errorf("a renewal: %v", err)
	}
	ann.hold("y")
	if err := ann.release(3); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Claim(ctx, lockkeeper.Key{Session: "ann", Epoch: ann.key.Epoch + 1}, w); err == nil ||
		ctx.Err() != nil {
		t.Errorf("a claim that is refused: %v", err)
	}
}
