//go:build unix

package sqlitelock

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roles"
)

func init() { parts["script"] = playScript }

// playScript runs the script, prints each answer, and kills itself at the moment with the given
// number: before or after a statement.
func playScript(args []string) error {
	moment, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	var moments atomic.Int64
	name := registerFaults(func(bool, string) error {
		if moments.Add(1) == moment {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	})
	// What is written survives the process, synced or not.
	e, err := openHere(args[0], options{driver: name, careless: true})
	if err != nil {
		return err
	}
	fmt.Println("answer")
	tell := func() {
		if len(args) > 2 { // the first one tells what is in the rows
			fmt.Printf("rows %q\n", rowsOf(args[0]))
		}
	}
	tell()
	for i, step := range script(e) {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		fmt.Println("answer")
		tell()
	}
	fmt.Println("moments", moments.Load())
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// life runs the script in a process that dies at a moment, and returns what it
// printed.
func life(t *testing.T, path string, moment int, more ...string) []string {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{path, strconv.Itoa(moment)}, more...)...)
	cmd.Env = append(os.Environ(), roles.Variable+"=script")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("moment %d: %v\n%s", moment, err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// A process is killed before and after each of its SQL statements. Every answered call is in the
// file; a call without an answer is there as a whole or not at all. Nothing stays locked: the next
// process can lock everything at once.
func TestKilledAtEveryStatement(t *testing.T) {
	var after []string // what the rows say after each answer
	moments := 0
	for _, line := range life(t, file(t), 0, "tell") {
		if text, found := strings.CutPrefix(line, "rows "); found {
			rows, err := strconv.Unquote(text)
			if err != nil {
				t.Fatal(err)
			}
			after = append(after, rows)
		} else if text, found := strings.CutPrefix(line, "moments "); found {
			moments, _ = strconv.Atoi(text)
		}
	}
	if len(after) != len(script(nil))+1 || moments < 100 {
		t.Fatalf("the whole script: %d answers, %d moments", len(after), moments)
	}
	order := everyMoment(moments)
	began, looked := time.Now(), new(atomic.Int64)
	const bound = 30 * time.Second
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := looked.Add(1); int(i) <= len(order) && time.Since(began) < bound && !t.Failed(); i = looked.Add(1) {
				killedAt(t, order[i-1], after)
			}
		})
	}
	wg.Wait()
	t.Logf("killed at %d of %d moments in %s", min(int(looked.Load()), len(order)), moments,
		time.Since(began).Round(time.Second))
}

func killedAt(t *testing.T, moment int, after []string) {
	path := file(t)
	answers := 0
	for _, line := range life(t, path, moment) {
		if line == "answer" {
			answers++
		}
	}
	sure := ""
	if answers > 0 {
		sure = after[answers-1]
	}
	maybe := sure
	if answers < len(after) {
		maybe = after[answers]
	}
	rows := rowsOf(copied(t, path))
	if rows != sure && rows != maybe {
		t.Errorf("killed at moment %d, after %d answers: the rows say\n%s\nwant\n%s\nor\n%s", moment, answers, rows, sure,
			maybe)
		return
	}
	e, err := Open(bounded(t), path)
	if err != nil {
		t.Errorf("killed at moment %d: %v", moment, err)
		return
	}
	defer e.Close()
	before := snapshot(t, e) // checks the table
	k := attach(t, e, "next", time.Minute, nil)
	w := exclusive(1, "db")
	w.Wait = 0
	for _, path := range []lockkeeper.Path{"site", "net", "disk", "last"} {
		w.Targets = append(w.Targets, lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive})
	}
	if st := claim(t, e, k, w); st.State != lockkeeper.Held || st.Fence <= before.Counters.Fences || st.Unconfirmed {
		t.Errorf("killed at moment %d: the next one is %s with fence %d after %d, unconfirmed %t", moment, st.State, st.Fence,
			before.Counters.Fences, st.Unconfirmed)
	}
	if n := number(t, path, "SELECT count(*) FROM sessions WHERE state <> 'closed' AND id <> 'next'"); n != 0 {
		t.Errorf("killed at moment %d: %d sessions of the dead live on", moment, n)
	}
	expired := number(t, path, "SELECT count(*) FROM claims WHERE reason = 'expired'")
	if alive := strings.Count(rows, " held [") + strings.Count(rows, " waiting ["); expired < alive {
		t.Errorf("killed at moment %d: %d claims ended because their process died, want %d", moment, expired, alive)
	}
}
