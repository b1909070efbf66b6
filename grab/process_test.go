package grab_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/sqllock"
	"github.com/lockkeeper/lockkeeper/grab"
)

// The test binary is also the callers that are killed.
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

// caller grabs db in the folder, writes who holds it into the log there, and
// releases it, again and again until it is killed.
func caller(folder, name string) error {
	e, err := sqllock.Open(context.Background(), filepath.Join(folder, "locks.db"))
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(folder, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	places := grab.New(e)
	db := lockkeeper.Target{Path: "db", Mode: lockkeeper.ModeExclusive}
	r := grab.Request{As: name, Targets: []lockkeeper.Target{db}, Terms: grab.Terms{TTL: callersTTL}}
	for {
		a, err := places.Wait(context.Background(), r, time.Minute, nil)
		if err != nil {
			return err
		}
		if a.State != lockkeeper.Held {
			continue
		}
		// From here on it counts by its own clock, as a holder has to (R12).
		sent := time.Now()
		if a, err = places.Grab(context.Background(), r); err != nil {
			return err
		}
		if a.State == lockkeeper.Held && time.Since(sent) < callersTTL/2 {
			fmt.Fprintf(log, "%d %s\n", a.Fence, name)
		}
		<-time.After(rand.N(3 * time.Millisecond))
		if _, err := places.Release(context.Background(), r.Name()); err != nil {
			return err
		}
	}
}

// TestKilled: callers of eight names are killed at random, and others of the same
// names go on. No two of them hold at once: what they write in the order of time
// has fences that never fall, each of one name; and nothing is left in the way.
func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("processes are killed for some seconds")
	}
	t.Parallel()
	folder := t.TempDir()
	e, err := sqllock.Open(t.Context(), filepath.Join(folder, "locks.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	start := func(i int) *exec.Cmd {
		cmd := exec.Command(os.Args[0], "caller", folder, fmt.Sprintf("name-%d", i))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	var callers [8]*exec.Cmd
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
	for range 25 {
		<-time.After(rand.N(400 * time.Millisecond))
		i := rand.IntN(len(callers))
		kill(i)
		callers[i] = start(i)
	}
	for i := range callers {
		kill(i)
	}
	a, err := grab.New(e).Wait(t.Context(), grab.Request{As: "last", Targets: []lockkeeper.Target{exclusive("db")}}, time.Minute, nil)
	if err != nil || a.State != lockkeeper.Held {
		t.Errorf("the last one has %s in place %d (%v), want it to hold: what the dead left has ended", a.State, a.Place, err)
	}
	judge(t, filepath.Join(folder, "log"))
}

// judge reads the log of the holders.
func judge(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names, highest, lines := map[uint64]string{}, uint64(0), 0
	for s := bufio.NewScanner(f); s.Scan(); lines++ {
		number, name, _ := strings.Cut(s.Text(), " ")
		fence, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if fence < highest {
			t.Errorf("%s writes under fence %d after somebody wrote under %d", name, fence, highest)
		}
		if other := names[fence]; other != "" && other != name {
			t.Errorf("%s and %s write under one fence, %d", other, name, fence)
		}
		names[fence], highest = name, max(highest, fence)
	}
	if lines < 10 {
		t.Errorf("only %d holds were seen", lines)
	}
	t.Logf("%d holds", lines)
}
