package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// identity is as a server with a policy has it.
func identity(session string) string {
	who, _, found := strings.Cut(session, ":")
	if !found {
		return ""
	}
	return who
}

// auditFile opens an audit log in a folder of the test's own.
func auditFile(t *testing.T) (*Audit, string) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a, err := OpenAudit(path, identity)
	must(t, a, err)
	t.Cleanup(func() { a.Close() })
	return a, path
}

// read reads a log; lines that are no JSON are counted.
func read(t *testing.T, path string) (lines []line, cut int) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, text, err)
	for row := range bytes.Lines(text) {
		var l line
		if err := json.Unmarshal(row, &l); err != nil || !bytes.HasSuffix(row, []byte("\n")) {
			cut++
			continue
		}
		lines = append(lines, l)
	}
	return lines, cut
}

// What happened to a lock can be read in the log, by whom and why.
func TestAuditTells(t *testing.T) { synctest.Test(t, auditTells) }

func auditTells(t *testing.T) {
	a, path := auditFile(t)
	e := memlock.New()
	w := NewWatch(e, nil, a, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var ran sync.WaitGroup
	ran.Go(func() { w.Run(ctx) })
	a.Started("lk test serves mem:")
	synctest.Wait()

	c := lockkeeper.New(e, lockkeeper.SessionID("ci:k1"))
	defer c.Close()
	hold, err := c.Lock(ctx, "db/test", lockkeeper.WithAs("ann"), lockkeeper.WithNote("nightly"),
		lockkeeper.WithLink("https://ci.example/7"))
	must(t, hold, err)
	synctest.Wait()
	must(t, 0, c.Revoke(ctx, hold.Ref(), false, lockkeeper.Label{As: "bob", Note: "disk is full"}))
	synctest.Wait()
	must(t, 0, c.Revoke(ctx, hold.Ref(), true, lockkeeper.Label{As: "bob", Note: "now"}))
	synctest.Wait()
	must(t, 0, c.Freeze(ctx, "db", time.Hour, lockkeeper.Label{As: "bob", Note: "maintenance"}))
	synctest.Wait()
	must(t, 0, c.Thaw(ctx, "db", lockkeeper.Label{}))
	synctest.Wait()
	a.Act(access.Act{
		Identity: "bob",
		From:     "192.0.2.7:1",
		Verb:     access.Revoke,
		Ref:      hold.Ref(),
		Force:    true,
		Label:    lockkeeper.Label{Note: "now"},
	})
	a.Act(access.Act{
		Identity: "eve",
		Verb:     access.Lock,
		Path:     "db/test",
		Err:      &lockkeeper.Error{Err: lockkeeper.ErrDenied, Detail: "eve may not lock db/test"},
	})
	cancel()
	ran.Wait()
	a.Stopped("the server is stopping")
	must(t, 0, a.Close())

	lines, cut := read(t, path)
	if cut > 0 {
		t.Errorf("%d lines are no JSON", cut)
	}
	var told []string
	for _, l := range lines {
		if _, err := time.Parse(time.RFC3339, l.Time); err != nil {
			t.Errorf("%s: %v", l.Event, err)
		}
		told = append(told, inShort(&l))
	}
	want := auditLines(hold.Ref().String())
	if len(told) != len(want) {
		t.Fatalf("the log has %d lines, want %d:\n%s", len(told), len(want), strings.Join(told, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(told[i], want[i]) {
			t.Errorf("line %d is\n%s, want\n%s", i, told[i], want[i])
		}
	}
	if by := lines[3].Text; !strings.Contains(by, "bob") && !strings.Contains(by, "now") {
		t.Errorf("the end by an operator says %q: not who, and not why", by)
	}
}

// auditLines are the beginnings of the lines that the story leaves in the log.
func auditLines(ref string) []string {
	return []string{
		"started claim= by= as= note= fence=0 reason= path= verb= error=false",
		"granted claim=" + ref + " by=ci as=ann note=nightly fence=1 reason= path= verb= error=false exclusive:db/test",
		"asked claim=" + ref +
			" by=ci as=ann note=nightly fence=1 reason= path= verb= error=false asked=disk is full exclusive:db/test",
		"ended claim=" + ref + " by=ci as=ann note=nightly fence=1 reason=revoked path= verb= error=false exclusive:db/test",
		"frozen", "thawed claim=",
		"operator claim=" + ref + " by=bob as= note=now fence=0 reason= path= verb=revoke error=false",
		"denied claim= by=eve as= note= fence=0 reason= path=db/test verb=lock error=true",
		"stopped claim=",
	}
}

// inShort is what a line tells.
func inShort(l *line) string {
	s := fmt.Sprintf("%s claim=%s by=%s as=%s note=%s fence=%d reason=%s path=%s verb=%s error=%t", l.Event, l.Claim,
		l.Identity, l.As, l.Note, l.Fence, l.Reason, l.Path, l.Verb, l.Error != "")
	if l.Asked != nil {
		s += " asked=" + l.Asked.Note
	}
	if len(l.Targets) == 1 {
		s += fmt.Sprintf(" %s:%s", l.Targets[0].Mode, l.Targets[0].Path)
	}
	return s
}

// After the file was renamed, a new one begins.
func TestAuditReopen(t *testing.T) { synctest.Test(t, auditReopen) }

func auditReopen(t *testing.T) {
	a, path := auditFile(t)
	a.Started("one")
	synctest.Wait()
	must(t, 0, os.Rename(path, path+".1"))
	a.Started("two")
	synctest.Wait()
	must(t, 0, a.Reopen())
	a.Started("three")
	must(t, 0, a.Close())
	for file, want := range map[string]int{path + ".1": 2, path: 1} {
		if lines, cut := read(t, file); len(lines) != want || cut > 0 {
			t.Errorf("%s has %d lines and %d cut ones, want %d", file, len(lines), cut, want)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the new file is %v (%v), want it for its owner alone", info.Mode(), err)
	}
}

// A log that was cut in the middle of a line goes on in a new one.
func TestAuditAfterCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	must(t, 0, os.WriteFile(path, []byte("{\"event\":\"started\"}\n{\"event\":\"gra"), 0o600))
	a, err := OpenAudit(path, nil)
	must(t, a, err)
	a.Started("again")
	must(t, 0, a.Close())
	if lines, cut := read(t, path); len(lines) != 2 || cut != 1 {
		t.Errorf("%d lines and %d cut ones, want 2 and 1", len(lines), cut)
	}
}

// A full disk drops lines beyond a bound, holds up nobody, and is told.
func TestAuditFullDisk(t *testing.T) { synctest.Test(t, auditFullDisk) }

func auditFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this system has no /dev/full")
	}
	folder := t.TempDir()
	path := filepath.Join(folder, "audit")
	must(t, 0, os.Symlink("/dev/full", path))
	a, err := OpenAudit(path, nil)
	must(t, a, err)
	a.Started("one")
	synctest.Wait()
	if f := auditFinding(a.Err()); f.Grade != lockkeeper.Broken {
		t.Errorf("the finding is %+v, want it broken", f)
	}
	long := strings.Repeat("x", 64<<10)
	for range 2 * mostUnwritten / len(long) {
		a.Started(long)
	}
	dropped := a.count().dropped
	if dropped == 0 || dropped > mostUnwritten/uint64(len(long))+2 {
		t.Errorf("%d lines were dropped", dropped)
	}
	must(t, 0, os.Remove(path))
	must(t, 0, a.Reopen())
	time.Sleep(2 * syncPause)
	must(t, 0, a.Err())
	a.Started("two")
	must(t, 0, a.Close())
	lines, cut := read(t, path)
	total := uint64(0)
	for _, l := range lines {
		total += uint64(l.Dropped)
	}
	if cut > 0 || total != dropped || lines[0].Text != "one" || lines[len(lines)-1].Text != "two" {
		t.Errorf("the log tells of %d dropped lines of %d, %d are cut, the first is %q, the last %q", total, dropped, cut,
			lines[0].Text, lines[len(lines)-1].Text)
	}
}

// A client that is denied again and again gets some lines, not all.
func TestAuditDenialsAreBounded(t *testing.T) {
	a, path := auditFile(t)
	for range 1000 {
		a.Act(access.Act{Verb: access.Connect, Err: lockkeeper.ErrDenied})
	}
	must(t, 0, a.Close())
	if lines, _ := read(t, path); len(lines) > 3*mostDenials || len(lines) < mostDenials {
		t.Errorf("1000 denials made %d lines", len(lines))
	}
}

// What can't be a log is refused at once.
func TestAuditRefuses(t *testing.T) {
	folder := t.TempDir()
	if _, err := OpenAudit(folder, nil); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("a directory: %v", err)
	}
	if _, err := OpenAudit(filepath.Join(folder, "no", "such"), nil); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("a file in no directory: %v", err)
	}
}

// Without a log, all of it does nothing.
func TestNoAudit(t *testing.T) {
	var a *Audit
	a.Started("")
	a.Stopped("")
	a.Act(access.Act{})
	must(t, 0, errors.Join(a.Reopen(), a.Err(), a.Close()))
	synctest.Test(t, func(t *testing.T) {
		e := memlock.New()
		m := watched(t, e) // without a log
		hold, err := client(t, e).Lock(t.Context(), "x")
		must(t, hold, err)
		synctest.Wait()
		expect(t, m, "holds: 1")
	})
}

// After a gap the log goes on with what is new, and says what became of the rest.
func TestAuditGap(t *testing.T) { synctest.Test(t, auditGap) }

func auditGap(t *testing.T) {
	a, path := auditFile(t)
	e := &forgetful{memlock.New(), make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	w := NewWatch(e, nil, a, nil)
	var ran sync.WaitGroup
	ran.Go(func() { w.Run(ctx) })
	c := client(t, e)
	_, err := c.Lock(ctx, "stays")
	must(t, 0, err)
	ends, err := c.Lock(ctx, "ends")
	must(t, ends, err)
	must(t, 0, c.Freeze(ctx, "ice", time.Hour, lockkeeper.Label{}))
	synctest.Wait()
	e.cut <- struct{}{}
	synctest.Wait()
	must(t, 0, ends.Release(ctx))
	_, err = c.Lock(ctx, "begins")
	must(t, 0, err)
	time.Sleep(10 * time.Second)
	cancel()
	ran.Wait()
	lines, _ := read(t, path)
	count := map[string]int{}
	for _, l := range lines {
		count[l.Event+" "+l.Reason]++
	}
	if want := map[string]int{"granted ": 3, "frozen ": 1, "gap ": 1, "ended not seen": 1}; !maps.Equal(count, want) {
		t.Errorf("the log has %v, want %v", count, want)
	}
}

// auditVariable has this binary write a log until it is killed.
const auditVariable = "LOCKKEEPER_TEST_AUDIT"

func TestMain(m *testing.M) {
	path := os.Getenv(auditVariable)
	if path == "" {
		os.Exit(m.Run())
	}
	a, err := OpenAudit(path, nil)
	if err != nil {
		panic(err)
	}
	said := false
	for i := 0; ; i++ {
		a.Started(fmt.Sprintf("%d %s", i, strings.Repeat("x", i%5000)))
		if !said && a.count().written > 1000 {
			said = true
			fmt.Println("going")
		}
	}
}

// Killed at any moment, a log has whole lines, and at most one cut one a kill.
func TestAuditKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	const kills = 3
	for range kills {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), auditVariable+"="+path)
		out, err := cmd.StdoutPipe()
		must(t, out, err)
		must(t, 0, cmd.Start())
		_, err = out.Read(make([]byte, 1))
		must(t, 0, err)
		must(t, 0, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
	}
	if lines, cut := read(t, path); len(lines) == 0 || cut > kills {
		t.Errorf("%d lines, and %d that are cut", len(lines), cut)
	}
}

// stays is an engine that a client does not close.
type stays struct{ lockkeeper.Engine }

func (stays) Close() error { return nil }

// Under random load the log has every grant of the engine, once: fences without gaps
// and doubles, and an end for each.
func TestAuditHasEveryGrant(t *testing.T) { synctest.Test(t, auditHasEveryGrant) }

func auditHasEveryGrant(t *testing.T) {
	seed := testmode.Seed(t)
	a, path := auditFile(t)
	e := memlock.New()
	w := NewWatch(e, nil, a, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var ran, load sync.WaitGroup
	ran.Go(func() { w.Run(ctx) })
	began := lockkeeper.New(e)
	defer began.Close()
	hold, err := began.Lock(ctx, "first")
	must(t, hold, err)
	synctest.Wait()
	must(t, 0, hold.Release(ctx))
	for worker := range 8 {
		random := rand.New(rand.NewPCG(seed, uint64(worker)))
		load.Go(func() {
			c := lockkeeper.New(stays{e})
			defer c.Close()
			for range 300 {
				what := []lockkeeper.Request{
					lockkeeper.Shared("a"), lockkeeper.Exclusive(fmt.Sprint("a/", random.IntN(3))),
					lockkeeper.Permits("p", 1, 1+random.IntN(4)),
				}[random.IntN(3)]
				var h *lockkeeper.Hold
				var err error
				if random.IntN(2) == 0 {
					h, err = c.Acquire(ctx, what)
				} else {
					h, err = c.Acquire(ctx, what, lockkeeper.WithWait(0))
				}
				if err == nil {
					runtime.Gosched()
					err = h.Release(ctx)
				}
				if err != nil && !errors.Is(err, lockkeeper.ErrNotAcquired) {
					t.Error(err)
				}
			}
		})
	}
	load.Wait()
	last, err := began.Lock(ctx, "last")
	must(t, last, err)
	fences := last.Fence()
	must(t, 0, last.Release(ctx))
	synctest.Wait()
	cancel()
	ran.Wait()
	granted, ended := fencesIn(t, path)
	for fence := uint64(1); fence <= fences; fence++ {
		if granted[fence] != 1 || ended[fence] != 1 {
			t.Errorf("seed %d: fence %d was granted %d times and ended %d times", seed, fence, granted[fence], ended[fence])
		}
	}
	if len(granted) != int(fences) {
		t.Errorf("seed %d: %d fences were granted, the engine says %d", seed, len(granted), fences)
	}
}

// fencesIn counts the lines about grants and about ends of holds, by fence.
func fencesIn(t *testing.T, path string) (granted, ended map[uint64]int) {
	granted, ended = map[uint64]int{}, map[uint64]int{}
	lines, _ := read(t, path)
	for _, l := range lines {
		switch {
		case l.Event == "granted":
			granted[l.Fence]++
		case l.Event == "ended" && l.Fence > 0:
			ended[l.Fence]++
		}
	}
	return granted, ended
}

// A log whose file was removed or renamed, without a word or with one that came to
// nothing, goes on in a file of its name as soon as that can be; until then Err says so.
func TestAuditAstray(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, path := auditFile(t)
		defer a.Close()
		has := func(want ...string) {
			t.Helper()
			synctest.Wait()
			lines, _ := read(t, path)
			var told []string
			for _, l := range lines {
				told = append(told, l.Event)
			}
			if strings.Join(told, " ") != strings.Join(want, " ") {
				t.Errorf("the log has %q, want %q", told, want)
			}
		}
		must(t, 0, os.Remove(path))
		time.Sleep(3 * lookPause)
		a.Started("one")
		has("gap", "started")
		must(t, 0, a.Err())

		must(t, 0, os.Rename(path, path+".1"))
		must(t, 0, a.Reopen())
		time.Sleep(3 * lookPause)
		a.Started("two")
		has("started")

		must(t, 0, os.Remove(path))
		must(t, 0, os.Mkdir(path, 0o700))
		if err := a.Reopen(); !errors.Is(err, lockkeeper.ErrInvalid) || a.Err() == nil {
			t.Errorf("a directory: %v, and then %v", err, a.Err())
		}
		a.Started("lost")
		time.Sleep(3 * lookPause)
		if a.Err() == nil {
			t.Error("what was written is lost, and nobody says so")
		}
		must(t, 0, os.Remove(path))
		time.Sleep(2 * lookPause)
		a.Started("three")
		has("gap", "started")
		must(t, 0, a.Err())
	})
}
