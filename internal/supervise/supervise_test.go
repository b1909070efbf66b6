//go:build unix

package supervise

import (
	"bufio"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper"
)

// fakeLease is a lease whose end the test decides.
type fakeLease struct {
	done      chan struct{}
	lost      atomic.Bool
	remaining atomic.Int64
	looked    atomic.Int64 // calls of Remaining
	asked     chan struct{}
	ask       *lockkeeper.Asked
}

func newFakeLease(remaining time.Duration) *fakeLease {
	l := &fakeLease{done: make(chan struct{}), asked: make(chan struct{})}
	l.remaining.Store(int64(remaining))
	return l
}

func (l *fakeLease) lose() {
	l.lost.Store(true)
	l.remaining.Store(0)
	close(l.done)
}

func (l *fakeLease) Done() <-chan struct{}       { return l.done }
func (l *fakeLease) YieldAsked() <-chan struct{} { return l.asked }
func (l *fakeLease) Asked() *lockkeeper.Asked    { return l.ask }
func (l *fakeLease) RenewError() error           { return errors.New("the disk is full") }

func (l *fakeLease) Remaining() time.Duration {
	l.looked.Add(1)
	return time.Duration(l.remaining.Load())
}

func (l *fakeLease) Err() error {
	if l.lost.Load() {
		return &lockkeeper.Error{Err: lockkeeper.ErrLost, Reason: lockkeeper.Revoked}
	}
	return nil
}

// supervised is a shell script under a supervisor.
type supervised struct {
	stdin  *os.File
	stdout *bufio.Scanner
	result chan error
	code   int
	notes  []string
}

// superviseScript starts a supervised script; the functions in more change the supervisor before.
func superviseScript(t *testing.T, l Lease, grace time.Duration, script string, more ...func(*Supervisor)) *supervised {
	t.Helper()
	out, stdout := pipe(t)
	stdin, in := pipe(t)
	child := startWith(t, stdin, stdout, script)
	stdin.Close()
	stdout.Close()
	t.Cleanup(child.kill)
	run := &supervised{stdin: in, stdout: bufio.NewScanner(out), result: make(chan error, 1)}
	s := Supervisor{
		Options: Options{
			Lease:   l,
			Grace:   grace,
			OnLost:  Terminate,
			OnYield: Ignore,
			What:    "db",
			Note:    func(text string) { run.notes = append(run.notes, text) },
		},
		child: child,
		tick:  time.Second,
	}
	for _, change := range more {
		change(&s)
	}
	go func() {
		end, lost := s.Wait(make(chan os.Signal, 1))
		run.code = end.Code
		run.result <- lost
	}()
	return run
}

// startWith starts a script that has these files as lk's own.
func startWith(t *testing.T, stdin, stdout *os.File, script string) *child {
	t.Helper()
	defer func(in, out *os.File) { os.Stdin, os.Stdout = in, out }(os.Stdin, os.Stdout)
	os.Stdin, os.Stdout = stdin, stdout
	child, err := startChild([]string{"sh", "-c", script}, os.Environ(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return child
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func (s *supervised) line(t *testing.T) string {
	t.Helper()
	if !s.stdout.Scan() {
		t.Fatal("the script closed its output")
	}
	return s.stdout.Text()
}

func (s *supervised) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-s.result:
		return err
	case <-time.After(patience):
		t.Fatal("the supervisor does not end")
		return nil
	}
}

// ended reports whether the process has ended, waited for or not.
func ended(t *testing.T, pid string) func() bool {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	return func() bool {
		if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil {
			return strings.Contains(string(stat), ") Z ")
		}
		return unix.Kill(n, 0) != nil
	}
}

// The command and its descendants in the group are dead when the lock is lost, even if they ignore
// TERM.
func TestLossEndsTheWholeGroup(t *testing.T) {
	l := newFakeLease(time.Hour)
	s := superviseScript(t, l, time.Second, `trap "" TERM; sh -c 'echo $$; exec sleep 600' & wait`)
	pid := s.line(t)
	l.lose()
	err := s.end(t)
	if !errors.Is(err, lockkeeper.ErrLost) || !errors.Is(err, lockkeeper.Revoked) {
		t.Errorf("error %v, want the loss with its reason", err)
	}
	if s.code != SignalCode+int(unix.SIGKILL) {
		t.Errorf("the command ended with %d, want it killed", s.code)
	}
	eventually(t, "what the command started is dead", ended(t, pid))
}

// While renewals fail, the supervisor sends TERM when the rest of the lease falls to the grace. So
// the command and its descendants have time to clean up.
func TestCommandIsAskedToStopBeforeTheEnd(t *testing.T) {
	const grace = 2 * time.Second
	l := newFakeLease(grace + 5*time.Millisecond)
	s := superviseScript(t, l, grace,
		`trap 'exit 3' TERM; sh -c 'trap "echo cleaned up; exit" TERM; echo ready; sleep 600 & wait' & wait`)
	s.line(t)
	l.remaining.Store(int64(grace / 2))
	if err := s.end(t); err == nil || !strings.Contains(err.Error(), "could not be renewed (the disk is full)") {
		t.Errorf("error %v, want that it could not be renewed, and why", err)
	}
	if s.code != 3 {
		t.Errorf("the command ended with %d, want its own 3", s.code)
	}
	if got := s.line(t); got != "cleaned up" {
		t.Errorf("what the command started says %q", got)
	}
}

// After the computer slept, little or nothing of the lease remains, and Go's timers did not run:
// the supervisor checks the lease every tick.
func TestLeaseIsCheckedAfterSleep(t *testing.T) {
	often := func(s *Supervisor) { s.tick = time.Millisecond }
	t.Run("a little is left", func(t *testing.T) {
		l := newFakeLease(time.Hour)
		s := superviseScript(t, l, time.Minute, `trap 'exit 3' TERM; echo ready; read x`, often)
		s.line(t)
		l.remaining.Store(int64(time.Second))
		if err := s.end(t); err == nil || s.code != 3 {
			t.Errorf("code %d, error %v; want its own 3, and a loss", s.code, err)
		}
	})
	t.Run("TERM is sent once", func(t *testing.T) {
		l := newFakeLease(time.Hour)
		s := superviseScript(t, l, time.Minute, `trap 'echo asked' TERM; echo ready; for i in 1 2; do read x; done; exit 4`,
			often)
		s.line(t)
		l.remaining.Store(int64(time.Second))
		if got := s.line(t); got != "asked" {
			t.Fatalf("the script says %q", got)
		}
		looked := l.looked.Load()
		eventually(t, "the supervisor looks again", func() bool { return l.looked.Load() > looked+20 })
		s.stdin.Close()
		if err := s.end(t); err == nil || s.code != 4 || s.stdout.Scan() {
			t.Errorf("code %d, error %v, more output %q; want 4, a loss, no more", s.code, err, s.stdout.Text())
		}
	})
}

// A command that does not heed TERM is killed with the lease.
func TestStubbornCommandIsKilledAtTheEnd(t *testing.T) {
	const grace = time.Millisecond
	l := newFakeLease(grace + time.Millisecond)
	s := superviseScript(t, l, grace, `trap 'echo no' TERM; echo ready; while :; do sleep 600 & wait; done`)
	for _, want := range []string{"ready", "no"} {
		if got := s.line(t); got != want {
			t.Fatalf("the script says %q, want %q", got, want)
		}
		l.remaining.Store(int64(grace / 2))
	}
	l.lose()
	if err := s.end(t); err == nil || s.code != SignalCode+int(unix.SIGKILL) {
		t.Errorf("code %d, error %v; want it killed, and a loss", s.code, err)
	}
}

// A lease that is renewed again and again stops nobody.
func TestRenewedLeaseStopsNobody(t *testing.T) {
	const grace = 5 * time.Millisecond
	l := newFakeLease(grace + time.Millisecond)
	s := superviseScript(t, l, grace, `read x; exit 4`)
	eventually(t, "the supervisor looks at the lease", func() bool { return l.looked.Load() > 20 })
	s.stdin.Close()
	if err := s.end(t); err != nil || s.code != 4 {
		t.Errorf("code %d, error %v; want 4 and none", s.code, err)
	}
}

// A loss that is seen only when the command has ended is still a loss.
func TestEndAfterLossIsALoss(t *testing.T) {
	l := newFakeLease(time.Hour)
	l.lost.Store(true) // the deadline has passed, and no timer has fired yet
	s := superviseScript(t, l, time.Second, `exit 0`)
	if err := s.end(t); !errors.Is(err, lockkeeper.ErrLost) {
		t.Errorf("error %v, want ErrLost", err)
	}
}

// Without a loss, background processes of the command live on, as under any shell.
func TestBackgroundProcessesAreLeftAlone(t *testing.T) {
	s := superviseScript(t, newFakeLease(lockkeeper.Forever), time.Second,
		`sh -c 'echo $$; exec sleep 600' & read x; exit 6`)
	pid := s.line(t)
	s.stdin.Close()
	if err := s.end(t); err != nil || s.code != 6 {
		t.Errorf("code %d, error %v; want 6 and none", s.code, err)
	}
	if ended(t, pid)() {
		t.Error("what the command left behind was ended")
	}
}

// lk prints a request for the lock.
func TestAskIsPrinted(t *testing.T) {
	l := newFakeLease(lockkeeper.Forever)
	l.ask = &lockkeeper.Asked{Reason: lockkeeper.Stolen, Label: lockkeeper.Label{As: "urgent-7"}, Left: lockkeeper.Forever}
	s := superviseScript(t, l, time.Second, `read x; exit 0`)
	l.asked <- struct{}{} // taken when the supervisor has seen it
	s.stdin.Close()
	if err := s.end(t); err != nil {
		t.Fatal(err)
	}
	if len(s.notes) != 1 || s.notes[0] != "db: asked to yield to urgent-7" {
		t.Errorf("printed %q", s.notes)
	}
}
