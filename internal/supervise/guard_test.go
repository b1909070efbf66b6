//go:build unix

package supervise

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lk replaces a killed guard by another that gets all orders again, a few times. Then it warns that
// it continues without one.
func TestKilledGuardIsReplaced(t *testing.T) {
	var notes []string
	l := newFakeLease(time.Hour)
	s := superviseScript(t, l, time.Second, `echo $$; exec sleep 600`)
	pid := s.line(t)
	g := newGuard("db", nil, nil, func(text string) { notes = append(notes, text) })
	g.start()
	t.Cleanup(g.stop)
	var number int
	fmt.Sscan(pid, &number)
	g.watch(openGroup(number), time.Second)
	g.until(bootTime() + time.Hour)
	for range mostGuards - 1 {
		first := g.process.Pid
		g.process.Kill()
		g.replace(<-g.ended())
		if g.process == nil || g.process.Pid == first || len(notes) != 0 {
			t.Fatalf("no other guard; noted %q", notes)
		}
	}
	g.orders.Close() // as lk's death does: the last one must know the group
	if done := <-g.ended(); !done {
		t.Error("the guard did not end as it should")
	}
	eventually(t, "the command is dead", ended(t, pid))
	if s.end(t); s.code != SignalCode+int(unix.SIGKILL) {
		t.Errorf("the command ended with %d", s.code)
	}

	g.replace(false)
	if g.ended() != nil || len(notes) != 1 || !strings.Contains(notes[0], "again and again") {
		t.Errorf("a guard too many, or noted %q", notes)
	}
	g.until(bootTime()) // to nobody
}

// A stopped guard does not block lk: when the pipe is full, lk kills the guard.
func TestStoppedGuardIsReplaced(t *testing.T) {
	g := newGuard("db", nil, nil, func(text string) { t.Error(text) })
	g.start()
	defer g.stop()
	if err := unix.Kill(g.process.Pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	full := make([]byte, 1<<20)
	g.send("%s", full) // more than a pipe holds
	done := <-g.ended()
	if g.replace(true); done {
		t.Error("the guard ended by itself")
	}
}

// An earlier end is sent at once, a later one if it differs by a millisecond.
func TestEarlierEndIsSentAtOnce(t *testing.T) {
	var g guard // without a process
	g.until(10 * time.Second)
	for _, c := range []struct{ end, want time.Duration }{
		{10*time.Second + time.Microsecond, 10 * time.Second},
		{10*time.Second - time.Microsecond, 10*time.Second - time.Microsecond},
		{11 * time.Second, 11 * time.Second},
	} {
		if g.until(c.end); g.end != c.want {
			t.Errorf("after the end %s the guard has %s, want %s", c.end, g.end, c.want)
		}
	}
}
