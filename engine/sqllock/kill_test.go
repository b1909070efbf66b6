package sqllock

import (
	"context"
	"database/sql"
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
)

// script is one life of a process, in steps of one call each: everything that
// changes rows is in it.
func script(e *Engine) []func() error {
	ctx := context.Background()
	keys := make(map[string]lockkeeper.Key)
	attach := func(id string, named ...uint64) func() error {
		return func() error {
			lease, err := e.Attach(ctx, lockkeeper.Session{ID: id, TTL: time.Hour, Named: named}, nil)
			keys[id] = lease.Key
			return err
		}
	}
	claim := func(id string, state lockkeeper.State, w lockkeeper.Want) func() error {
		return func() error {
			st, err := e.Claim(ctx, keys[id], w)
			if err == nil && w.Freeze == 0 && st.State != state {
				err = fmt.Errorf("%s is %s, want %s", st.Ref, st.State, state)
			}
			return err
		}
	}
	end := func(id string, ending lockkeeper.Ending) func() error {
		return func() error { return e.End(ctx, keys[id], ending) }
	}
	renew := func(id string) func() error {
		return func() error { _, err := e.Renew(ctx, keys[id]); return err }
	}
	want := func(id uint64, mode lockkeeper.Mode, path lockkeeper.Path) lockkeeper.Want {
		w := exclusive(id, path)
		w.Targets[0].Mode = mode
		if mode == lockkeeper.ModePermits {
			w.Targets[0].Units, w.Targets[0].Limit = 2, 5
		}
		return w
	}
	revised := func(w lockkeeper.Want, change func(*lockkeeper.Want)) lockkeeper.Want {
		w.Targets = append([]lockkeeper.Target(nil), w.Targets...)
		w.Revision++
		change(&w)
		return w
	}
	thief := exclusive(2, "site")
	thief.Priority, thief.Steal = 5, lockkeeper.Take
	freeze := lockkeeper.Want{ID: 3, Freeze: time.Hour, Targets: []lockkeeper.Target{{Path: "frozen", Mode: lockkeeper.ModeExclusive}}}
	two := want(4, lockkeeper.ModePermits, "net")
	two.Targets = append(two.Targets, lockkeeper.Target{Path: "disk", Mode: lockkeeper.ModeShared})
	shared := want(2, lockkeeper.ModeShared, "site")
	return []func() error{
		attach("a"), attach("b"),
		claim("a", lockkeeper.Held, exclusive(1, "db")),
		claim("b", lockkeeper.Waiting, want(1, lockkeeper.ModeShared, "db/x")),
		renew("a"),
		claim("a", lockkeeper.Held, shared),
		claim("a", lockkeeper.Held, revised(shared, func(w *lockkeeper.Want) { w.Targets[0].Mode = lockkeeper.ModeExclusive })),
		claim("b", lockkeeper.Held, thief), // takes it at once
		claim("b", lockkeeper.Waiting, freeze),
		end("a", lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}), // b.1 is granted
		claim("a", lockkeeper.Held, two),
		claim("a", lockkeeper.Held, revised(two, func(w *lockkeeper.Want) { w.Priority = 3 })),
		end("a", lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: "frozen"}),
		claim("a", lockkeeper.Waiting, exclusive(5, "db")), // behind b.1
		end("a", lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: lockkeeper.Ref{Session: "b", ID: 1}, Force: true}),
		attach("a", 4, 5), renew("a"), // under a new epoch
		end("b", lockkeeper.Ending{Kind: lockkeeper.Leave}),
		claim("a", lockkeeper.Held, exclusive(6, "last")),
	}
}

// playScript lives that life, tells of each answer, and kills itself at the
// moment with the number that it is given: before or after a statement.
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
	e, err := Open(context.Background(), args[0], Options{driver: name, careless: true})
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

// rowsOf is what a file says, but for instants; "" if it says nothing yet.
func rowsOf(path string) string {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return ""
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)") // the engine may be closing it just now
	if err != nil {
		return err.Error()
	}
	defer db.Close()
	var tables, version, rows int
	if err := db.QueryRow("SELECT (SELECT count(*) FROM sqlite_schema), user_version FROM pragma_user_version").Scan(&tables, &version); err != nil {
		return err.Error()
	}
	if tables == 0 {
		return ""
	}
	if version != ownSchema.latest {
		return fmt.Sprintf("%d tables of version %d", tables, version)
	}
	if err := db.QueryRow("SELECT count(*) FROM meta").Scan(&rows); err != nil || rows == 0 {
		return ""
	}
	var text string
	err = db.QueryRow(`SELECT concat_ws(' | ', (SELECT concat_ws(' ', fences, tickets, epochs) FROM meta),
		(SELECT group_concat(concat_ws(' ', id, state, epoch), ', ') FROM (SELECT * FROM sessions ORDER BY id)),
		(SELECT group_concat(concat_ws(' ', session, id, state, targets, priority, ticket, fence, reason), ', ') FROM (SELECT * FROM claims ORDER BY session, id)),
		(SELECT group_concat(concat_ws(' ', path, state), ', ') FROM freezes))`).Scan(&text)
	if err != nil {
		return err.Error()
	}
	return text
}

// life runs the script in a process that dies at a moment, and returns what it
// printed.
func life(t *testing.T, path string, moment int, more ...string) []string {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{path, strconv.Itoa(moment)}, more...)...)
	cmd.Env = append(os.Environ(), roleVariable+"=script")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("moment %d: %v\n%s", moment, err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// A process is killed before and after each of its SQL statements. What it was
// answered is in the file, whole; of what it was not answered, all or nothing
// is. It leaves nothing locked: the next one has it all at once.
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
	stride := 1
	if testing.Short() {
		stride = 10
	}
	began, looked := time.Now(), new(atomic.Int64)
	const bound = 30 * time.Second
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 2 {
		wg.Go(func() {
			for {
				// In leaps, so that no part is missed should the time be over.
				i := int(next.Add(1)) - 1
				if i*stride >= moments || time.Since(began) > bound || t.Failed() {
					return
				}
				moment := 1 + i*stride*7919%moments
				killedAt(t, moment, after)
				looked.Add(1)
			}
		})
	}
	wg.Wait()
	t.Logf("killed at %d of %d moments in %s", looked.Load(), moments, time.Since(began).Round(time.Second))
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
		t.Errorf("killed at moment %d, after %d answers: the rows say\n%s\nwant\n%s\nor\n%s", moment, answers, rows, sure, maybe)
		return
	}
	e, err := Open(bounded(t), path, Options{})
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
		t.Errorf("killed at moment %d: the next one is %s with fence %d after %d, unconfirmed %t", moment, st.State, st.Fence, before.Counters.Fences, st.Unconfirmed)
	}
	if n := number(t, path, "SELECT count(*) FROM sessions WHERE state <> 'closed' AND id <> 'next'"); n != 0 {
		t.Errorf("killed at moment %d: %d sessions of the dead live on", moment, n)
	}
	expired := number(t, path, "SELECT count(*) FROM claims WHERE reason = 'expired'")
	if alive := strings.Count(rows, " held [") + strings.Count(rows, " waiting ["); expired < alive {
		t.Errorf("killed at moment %d: %d claims ended because their process died, want %d", moment, expired, alive)
	}
}
