package grab_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/sqlitelock"
	"github.com/lockkeeper/lockkeeper/grab"
)

// The test binary is also the program of the callers that the tests kill.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "caller" {
		if err := caller(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const callersTTL = 2 * time.Second

// caller grabs db in the folder, writes its name and fence into the log there, and releases db,
// again and again until it is killed.
func caller(folder, name string) error {
	e, err := sqlitelock.Open(context.Background(), filepath.Join(folder, "locks.db"))
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(folder, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	reservations := grab.New(e)
	db := lockkeeper.Target{Path: "db", Mode: lockkeeper.ModeExclusive}
	r := grab.Request{As: name, Targets: []lockkeeper.Target{db}, Terms: grab.Terms{TTL: callersTTL}}
	for {
		a, err := reservations.Wait(context.Background(), r, time.Minute, nil)
		if errors.Is(err, lockkeeper.ErrNotAcquired) || errors.Is(err, lockkeeper.ErrUnavailable) ||
			err == nil && a.State != lockkeeper.Held {
			continue // another caller of the name released the claim, or the computer is too busy
		}
		if err != nil {
			return err
		}
		// From here on the caller counts the lease by its own clock, as a holder has to (R12).
		sent := time.Now()
		if a, err = reservations.Grab(context.Background(), r); errors.Is(err, lockkeeper.ErrUnavailable) {
			continue
		} else if err != nil {
			return err
		}
		write := func(what string) {
			if time.Since(sent) > callersTTL/2 {
				what = "late"
			}
			fmt.Fprintf(log, "%d %s %s\n", a.Fence, name, what)
		}
		if a.State == lockkeeper.Held {
			write("begins")
			<-time.After(rand.N(3 * time.Millisecond))
			write("ends")
		}
		if _, err := reservations.Release(context.Background(), r.Name()); err != nil &&
			!errors.Is(err, lockkeeper.ErrUnavailable) {
			return err
		}
	}
}

// TestKilled kills callers of eight names at random, and starts others of the same names. No two
// names hold at once: in the order of the log the fences never fall, and each fence has one name.
// At the end no claim blocks a new one.
func TestKilled(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	log := killed(t, names)
	highest := uint64(0)
	for _, line := range log {
		if line.fence < highest && line.what != "late" {
			t.Errorf("%s writes under fence %d after somebody wrote under %d", line.name, line.fence, highest)
		}
		highest = max(highest, line.fence)
	}
}

// TestKilledOfOneName kills eight callers of one name at random, beside one caller of another name.
// One of the eight may release the hold of another. But while the other name holds, the engine
// grants nothing to the eight: every line between its two lines has a lower fence.
func TestKilledOfOneName(t *testing.T) {
	t.Parallel()
	log := killed(t, []string{"crew", "crew", "crew", "crew", "crew", "crew", "crew", "crew", "rival"})
	if !slices.ContainsFunc(log, func(l line) bool { return l.name == "rival" && l.what == "ends" }) {
		t.Error("the rival never held")
	}
	var higher []line // that were written between the rival's lines
	for _, l := range log {
		switch {
		case l.name != "rival":
			higher = append(higher, l)
		case l.what == "begins":
			higher = nil
		case l.what == "ends":
			for _, h := range higher {
				if h.fence > l.fence {
					t.Errorf("crew writes under fence %d while the rival holds under %d", h.fence, l.fence)
				}
			}
		}
	}
}

// killed runs callers of those names, kills them at random, starts others instead, and returns
// their log.
func killed(t *testing.T, names []string) []line {
	t.Helper()
	folder := t.TempDir()
	e, err := sqlitelock.Open(t.Context(), filepath.Join(folder, "locks.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	start := func(i int) *exec.Cmd {
		cmd := exec.Command(os.Args[0], "caller", folder, names[i])
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	callers := make([]*exec.Cmd, len(names))
	for i := range callers {
		callers[i] = start(i)
	}
	kill := func(i int) {
		callers[i].Process.Kill()
		var ended *exec.ExitError
		if err := callers[i].Wait(); !errors.As(err, &ended) || ended.Exited() {
			t.Errorf("caller %d ended by itself: %v", i, err)
		}
	}
	log := filepath.Join(folder, "log")
	enough := func() bool { text, _ := os.ReadFile(log); return bytes.Count(text, []byte("ends")) >= 25 }
	for kills := 0; kills < 25 || !enough() && kills < 200; kills++ {
		<-time.After(rand.N(400 * time.Millisecond))
		i := rand.IntN(8)
		kill(i)
		callers[i] = start(i)
	}
	for i := range callers {
		kill(i)
	}
	a, err := grab.New(e).Wait(t.Context(), grab.Request{As: "last", Targets: []lockkeeper.Target{exclusive("db")}},
		time.Minute, nil)
	if err != nil || a.State != lockkeeper.Held {
		t.Errorf("the last one has %s in place %d (%v), want it to hold: what the dead left has ended", a.State, a.Position,
			err)
	}
	return read(t, log)
}

// line is one line of the log: a name and its fence.
type line struct {
	fence uint64
	name  string
	what  string // begins, ends, or late: by its own clock the hold may be over
}

// read reads the log of the holders, and checks that each fence has one name.
func read(t *testing.T, path string) (lines []line) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names := map[uint64]string{}
	for s := bufio.NewScanner(f); s.Scan(); {
		var l line
		if _, err := fmt.Sscan(s.Text(), &l.fence, &l.name, &l.what); err != nil {
			t.Fatalf("%q: %v", s.Text(), err)
		}
		if other := names[l.fence]; other != "" && other != l.name {
			t.Errorf("%s and %s write under one fence, %d", other, l.name, l.fence)
		}
		names[l.fence] = l.name
		lines = append(lines, l)
	}
	t.Logf("%d holds", len(names))
	return lines
}
