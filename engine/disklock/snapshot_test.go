package disklock

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/table"
)

// contents are the claims of an engine, as lines.
func contents(t testing.TB, e *Engine) string {
	t.Helper()
	var b strings.Builder
	for st, err := range e.List(t.Context(), lockkeeper.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, st.Ref, st.State, st.Fence, st.Grants, st.Ticket, st.Change)
	}
	return b.String()
}

// TestCloseAtAnyMomentOfASnapshot: closed at any moment of a snapshot, the next one has it all, and
// no journal is left to replay.
func TestCloseAtAnyMomentOfASnapshot(t *testing.T) {
	e := openHere(t, t.TempDir(), options{careless: true})
	a := attachTo(t, e, "ann")
	for n := range 24 * pieceRecords {
		a.hold(fmt.Sprint("p/", n))
	}
	dir := crash(t, e)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	claimMore := func(e *Engine, claims int) {
		b := attachTo(t, e, "bob")
		for range claims {
			b.hold(fmt.Sprint("q/", b.id))
		}
	}
	interrupted := 0
	for round := 0; round < 12; round += testmode.Pick(3, 1) {
		reference := t.TempDir()
		copyFolder(t, dir, reference)
		e := openHere(t, reference, options{careless: true})
		claimMore(e, round)
		want := contents(t, e)
		e.Close()
		image := t.TempDir()
		copyFolder(t, dir, image)
		// A snapshot is due at once, and a piece of it is written with each claim.
		e = openHere(t, image, options{careless: true, snapshotEvery: 1})
		claimMore(e, round)
		if err := e.Close(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if e.journal.tries > 0 {
			interrupted++
		}
		r, err := e.folder.recover(t.Context(), options{driver: "sqlite"})
		if err != nil || r.entries != 0 || r.state != stateClosed {
			t.Fatalf("round %d: %d entries are left, state %s, %v", round, r.entries, r.state, err)
		}
		e = openHere(t, image, options{careless: true})
		if got := contents(t, e); got != want {
			t.Fatalf("round %d: it has\n%s\nwant\n%s", round, got, want)
		}
		e.Close()
	}
	if interrupted == 0 {
		t.Error("no snapshot was interrupted, so the test proves nothing")
	}
}

// TestReopen: all is there again after a clean end, sessions must resume, fences
// and time go on.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	e := openHere(t, dir, options{})
	a := attachTo(t, e, "ann")
	fence := a.hold("db")
	now := e.journal.after.Now
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openHere(t, dir, options{})
	defer e.Close()
	if _, err := e.Renew(t.Context(), a.key); err == nil {
		t.Error("the session did not have to resume")
	}
	bob := attachTo(t, e, "bob")
	if st, err := bob.claim("db", patience); err != nil || st.State != lockkeeper.Ended {
		t.Errorf("db is %v (%v), want it taken", st.State, err)
	}
	a = attachTo(t, e, "ann", 1)
	if err := a.release(1); err != nil {
		t.Error(err)
	}
	if next := bob.hold("db"); next <= fence {
		t.Errorf("fence %d after %d", next, fence)
	}
	if e.journal.after.Now < now {
		t.Errorf("time went back from %s to %s", now, e.journal.after.Now)
	}
}

// TestTimeStandsStill: what is left of a wait when the process dies is left when the
// next one begins, however long there was none.
func TestTimeStandsStill(t *testing.T) {
	dir := t.TempDir()
	e := openHere(t, dir, options{})
	attachTo(t, e, "ann")
	e.Close()
	<-time.After(50 * time.Millisecond)
	e = openHere(t, dir, options{})
	defer e.Close()
	var first table.Counters
	e.Keeper.Snapshot(func(s table.Snapshot) {
		first = s.Counters
		if left := s.Sessions[0].Deadline - s.Counters.Now; left != time.Minute {
			t.Errorf("after the restart the session has %s, want its whole TTL", left)
		}
	})
	if reflect.DeepEqual(first, table.Counters{}) {
		t.Error("nothing is there")
	}
}
