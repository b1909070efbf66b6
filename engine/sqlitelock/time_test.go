package sqlitelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roles"
)

// After a reboot the time goes on from the latest entry, sessions that had a
// process are over, and the others resume with their whole TTL (R19, R20).
func TestReboot(t *testing.T) {
	path := file(t)
	clock := &fakeClock{}
	clock.set(100 * time.Hour)
	e := openFake(t, path, clock, "boot 1")
	lasting := openFake(t, path, clock, "boot 1")
	k, l := attach(t, e, "process", time.Minute, nil), attachOutliving(t, lasting, "lasting", time.Minute, nil)
	claim(t, e, k, exclusive(1, "db"))
	clock.advance(50 * time.Second)
	fence := claim(t, lasting, l, exclusive(1, "site")).Fence
	if err := e.End(bounded(t), attach(t, e, "left", time.Minute, nil),
		lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, e).Counters.Now

	// Another boot id while a process still lives is no reboot: that process sees the computer
	// differently.
	clock.set(3 * time.Second)
	if _, err := open(bounded(t), path, options{}, clock.read, "boot 2"); !errors.Is(err, lockkeeper.ErrUnavailable) ||
		!strings.Contains(err.Error(), "boot") {
		t.Fatalf("got %v, want ErrUnavailable", err)
	}
	// The power goes, and with it all processes.
	e.detachAll(t)
	e.Close()
	lasting.Close()
	after := openFake(t, path, clock, "boot 2")
	snap := snapshot(t, after)
	if snap.Counters.Now != before {
		t.Errorf("time goes on from %s, want %s", snap.Counters.Now, before)
	}
	if len(snap.Sessions) != 1 || snap.Sessions[0].ID != "lasting" || snap.Sessions[0].Resumed ||
		snap.Sessions[0].Deadline != before+time.Minute {
		t.Errorf("sessions %+v, want the lasting one, with its whole TTL, not resumed", snap.Sessions)
	}
	if _, err := after.Renew(bounded(t), l); !errors.Is(err, lockkeeper.ErrSession) {
		t.Errorf("got %v, want ErrSession until it has resumed", err)
	}
	lease, err := after.Attach(bounded(t), lockkeeper.Session{
		ID:      "lasting",
		TTL:     time.Minute,
		Named:   []uint64{1},
		Epoch:   l.Epoch,
		Outlive: true,
	}, nil)
	if err != nil || len(lease.Claims) != 1 || lease.Claims[0].Fence != fence {
		t.Errorf("resumed with %+v (%v), want its hold", lease.Claims, err)
	}
	if st := claim(t, after, lease.Key, exclusive(2, "db")); st.State != lockkeeper.Held || st.Fence <= fence {
		t.Errorf("what the dead process held: %s with fence %d, want held with a fence above %d", st.State, st.Fence, fence)
	}
	clock.advance(59 * time.Second)
	if sessions := snapshot(t, after).Sessions; len(sessions) != 1 {
		t.Errorf("%d sessions before the TTL has passed", len(sessions))
	}
}

// detachAll puts e's sessions into the state after a loss of power: their files are there, and no
// process has them locked.
func (e *Engine) detachAll(t *testing.T) {
	t.Helper()
	err := e.call(bounded(t), true, func(*transaction) {
		for id, a := range e.local.All() {
			if a.Own.file != nil {
				a.Own.file.Close()
			}
			e.local.Remove(id, a.Epoch)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A clock that reads less than before does not take the time back: it stands
// still until the clock has caught up.
func TestClockBehind(t *testing.T) {
	path := file(t)
	clock, late := &fakeClock{}, &fakeClock{}
	clock.set(time.Hour)
	late.set(time.Hour)
	e := openFake(t, path, clock, "boot")
	k := attach(t, e, "a", time.Minute, nil)
	clock.advance(30 * time.Second)
	if _, err := e.Renew(bounded(t), k); err != nil {
		t.Fatal(err)
	}
	behind := openFake(t, path, late, "boot")
	l := attach(t, behind, "b", time.Minute, nil)
	claim(t, behind, l, exclusive(1, "db"))
	if now := snapshot(t, behind).Counters.Now; now != 30*time.Second {
		t.Errorf("the time is %s, want 30s", now)
	}
	clock.advance(59 * time.Second)
	if sessions := snapshot(t, e).Sessions; len(sessions) != 2 {
		t.Errorf("%d sessions before their TTL has passed, want 2", len(sessions))
	}
	clock.advance(time.Second)
	if sessions := snapshot(t, e).Sessions; len(sessions) != 0 {
		t.Errorf("%d sessions after their TTL has passed, want none", len(sessions))
	}
}

// The clock goes back an hour, as when a virtual machine is restored: the time
// stands still until it has caught up. Nobody's lease ends too early, everything
// else goes on, and so do leases once it has.
func TestClockGoesBack(t *testing.T) {
	path := file(t)
	clock := &fakeClock{}
	clock.set(2 * time.Hour)
	e := openFake(t, path, clock, "boot")
	k := attach(t, e, "a", time.Minute, nil)
	fence := claim(t, e, k, exclusive(1, "db")).Fence
	clock.advance(30 * time.Second)
	if _, err := e.Renew(bounded(t), k); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, e).Counters.Now
	clock.advance(-time.Hour)
	for range 3 {
		clock.advance(15 * time.Minute)
		b := openFake(t, path, clock, "boot") // also for who comes now
		if now := snapshot(t, b).Counters.Now; now != before {
			t.Errorf("the time is %s, want that it stands still at %s", now, before)
		}
		if _, err := e.Renew(bounded(t), k); err != nil {
			t.Errorf("a renewal: %v", err)
		}
	}
	w := exclusive(2, "site")
	if st := claim(t, e, k, w); st.State != lockkeeper.Held || st.Fence <= fence {
		t.Errorf("a claim meanwhile: %s with fence %d after %d", st.State, st.Fence, fence)
	}
	if err := e.End(bounded(t), k, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 2}); err != nil {
		t.Error(err)
	}
	clock.advance(15*time.Minute + 59*time.Second)
	if sessions := snapshot(t, e).Sessions; len(sessions) != 1 {
		t.Errorf("%d sessions a second before the TTL has passed, want 1", len(sessions))
	}
	clock.advance(time.Second)
	if sessions := snapshot(t, e).Sessions; len(sessions) != 0 {
		t.Errorf("%d sessions after the TTL has passed, want none", len(sessions))
	}
}

// No wall clock decides anything here: nobody sets the time of a lease by
// setting the date. What may be read is how long something took.
func TestNoWallClock(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := filepath.Glob("schema/*.sql")
	if err != nil || len(schemas) == 0 {
		t.Fatal("no schema", err)
	}
	clocks := regexp.MustCompile(
		`(?i)time\.(Now|Until|Date|Unix)\b|CLOCK_REALTIME|\b(strftime|datetime|julianday|unixepoch|` +
			`current_time|current_timestamp)\b`)
	for _, name := range append(names, schemas...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			// A moment from which time.Since counts is on the monotonic clock.
			if found := clocks.FindString(line); found != "" && strings.TrimSpace(line) != "began := time.Now()" {
				t.Errorf("%s: %s in %q: only the boot clock counts", name, found, strings.TrimSpace(line))
			}
		}
	}
}

// A process in a time namespace, which shows another boot time, reads the same
// clock as all others.
func TestTimeNamespace(t *testing.T) {
	if err := exec.Command("unshare", "--time", "--boottime", "86400", "true").Run(); err != nil {
		t.Skipf("no time namespace can be made here: %v", err)
	}
	cmd := exec.Command("unshare", "--time", "--boottime", "86400", os.Args[0])
	cmd.Env = append(os.Environ(), roles.Variable+"=clock")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var there int64
	if _, err := fmt.Sscanf(string(out), "clock %d", &there); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	here, err := newBootClock()()
	if err != nil {
		t.Fatal(err)
	}
	if d := here - time.Duration(there); d < 0 || d > time.Hour {
		t.Errorf("the clock there reads %s, here %s", time.Duration(there), here)
	}
}

// Ended claims and closed sessions are removed after a while; a process that has not read since
// then reads the right state all the same.
func TestPurge(t *testing.T) {
	path := file(t)
	clock := &fakeClock{}
	e := openFake(t, path, clock, "boot")
	sleeper := openFake(t, path, clock, "boot")
	k := attach(t, e, "a", 20*time.Minute, nil)
	w := attach(t, e, "watcher", 10*time.Hour, nil)
	for i := range 20 {
		claim(t, e, k, exclusive(uint64(i+1), lockkeeper.Path(fmt.Sprintf("db/%d", i))))
	}
	snapshot(t, sleeper) // knows them all as held
	for i := range 19 {
		if err := e.End(bounded(t), k, lockkeeper.Ending{Kind: lockkeeper.Release, ID: uint64(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := rowCount(t, e, "claims"); n != 20 {
		t.Errorf("%d rows, want 20: an ended claim is remembered for a TTL", n)
	}
	clock.advance(15 * time.Minute)
	if _, err := e.Renew(bounded(t), k); err != nil {
		t.Fatal(err)
	}
	clock.advance(6 * time.Minute)
	if _, err := e.Renew(bounded(t), w); err != nil {
		t.Fatal(err)
	}
	if n := rowCount(t, e, "claims"); n != 1 {
		t.Errorf("%d rows after the TTL, want the one that is held", n)
	}
	compare(t, "a process that slept", snapshot(t, sleeper), snapshot(t, e))
	if err := e.End(bounded(t), k, lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
		t.Fatal(err)
	}
	clock.advance(keepClosed + time.Minute)
	if _, err := e.Renew(bounded(t), w); err != nil {
		t.Fatal(err)
	}
	clock.advance(20 * time.Minute)
	if _, err := e.Renew(bounded(t), w); err != nil {
		t.Fatal(err)
	}
	if claims, sessions := rowCount(t, e, "claims"), rowCount(t, e, "sessions"); claims != 0 || sessions != 1 {
		t.Errorf("%d claims and %d sessions are left, want 0 and 1", claims, sessions)
	}
	compare(t, "a process that slept", snapshot(t, sleeper), snapshot(t, e))
}

func rowCount(t *testing.T, e *Engine, name string) (n int) {
	t.Helper()
	var scanned error
	err := e.call(bounded(t), true, func(*transaction) {
		scanned = e.db.conn.QueryRowContext(context.Background(), "SELECT count(*) FROM "+name).Scan(&n)
	})
	if err != nil || scanned != nil {
		t.Fatal(err, scanned)
	}
	return n
}
