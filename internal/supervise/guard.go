//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guard is lk's side of the second watcher over the group of its command: another
// process of the same program, which stops the group before the lease ends if lk
// stands still, and ends it at once if lk dies. It has a process group of its own,
// so that what is meant for lk's job or for the command's doesn't reach it.
//
// lk tells it by a pipe what it must know (see guard_unix.go), and ends it by KILL when
// the command has ended: that works also if it was stopped. What it does when
// nobody is left on the other side of the pipe it must not do after that.
//
// A nil guard is none.
type guard struct {
	what    string   // is held, for messages
	stderr  *os.File // for those messages; nil: none
	session *os.File // see startGuard
	note    func(string)

	process *os.Process
	orders  *os.File
	gone    chan bool // it has exited; true: it has nothing left to do
	starts  int

	// Orders for the next guard, if this one is killed.
	group    group
	grace    time.Duration
	end      time.Duration // of the lease, by the boot clock; 0: not sent yet
	asked    bool
	farewell *Farewell // nil: the guard must not leave
	epoch    uint64    // of the session's latest attach
	lifeline *os.File  // the end that the guard reads; nil without farewell
}

const (
	// mostGuards is how often a guard is started before lk goes on without one.
	mostGuards = 4
	// ordersPatience bounds a write to a guard that does not read.
	ordersPatience = 100 * time.Millisecond
)

// newGuard makes a guard that is not started yet. Its process inherits the session's file,
// if there is one. Otherwise processes of the command that closed the file could still run
// when the kernel notifies the engine that the session is dead.
func newGuard(what string, stderr, session *os.File, note func(string)) *guard {
	return &guard{what: what, stderr: stderr, session: session, note: note}
}

// leaves makes the guard leave the session when lk and all of the command are dead. Only
// the command may inherit the returned file: while a process has it open, part of the
// command may run. If the file is nil, the guard does not leave. Call leaves before start.
func (g *guard) leaves(farewell *Farewell) *os.File {
	in, out, err := os.Pipe()
	if err != nil {
		return nil
	}
	g.farewell, g.epoch, g.lifeline = farewell, farewell.Epoch(), in
	return out
}

// start starts a guard, or the next one, and tells it all that it must know. It
// must be called by the goroutine that starts the command: see inherited.
func (g *guard) start() {
	g.process, g.orders, g.gone = nil, nil, nil
	if g.starts++; g.starts > mostGuards {
		g.note("its second watcher was ended again and again: should lk be killed too, what its command started may run on")
		return
	}
	if err := g.launch(); err != nil {
		g.note(fmt.Sprintf("no second watcher (%s): should lk be killed, what its command started may run on", err))
		return
	}
	if g.farewell != nil {
		g.tell("leave %d %d %s", os.Getpid(), g.farewell.TTL, g.farewell.Order)
		g.tell("epoch %d", g.epoch)
	}
	if g.group.number != 0 {
		g.tellGroup()
	}
	if g.end != 0 {
		g.tell("end %d", g.end)
	}
	if g.asked {
		g.tell("asked")
	}
}

func (g *guard) launch() error {
	program, err := ownProgram()
	if err != nil {
		return err
	}
	in, orders, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	cmd := &exec.Cmd{
		Path:        program,
		Args:        []string{"lk", Verb, g.what},
		Stdin:       in,
		Env:         []string{}, // it needs none, and other users may read it
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if g.stderr != nil {
		cmd.Stderr = g.stderr
	}
	if g.lifeline != nil {
		cmd.Stdout = g.lifeline // see lifeline in guard_leave.go
	}
	if err := inherited([]*os.File{g.session}, cmd.Start); err != nil {
		orders.Close()
		return err
	}
	gone := make(chan bool, 1)
	go func() { gone <- cmd.Wait() == nil }()
	g.process, g.orders, g.gone = cmd.Process, orders, gone
	return nil
}

// ownProgram is the file of the program that runs now, even if another one has
// taken its name since.
func ownProgram() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	return os.Executable()
}

// watch tells the guard which group to guard, and how long before the end of the
// lease it is asked to stop.
func (g *guard) watch(group group, grace time.Duration) {
	if g != nil {
		g.group, g.grace = group, grace
		g.tellGroup()
	}
}

func (g *guard) tellGroup() { g.tell("group %d %d %d", g.group.number, g.grace, g.group.began) }

// attached sends the guard the epoch of the session's latest attach, if it changed.
func (g *guard) attached(epoch uint64) {
	if g != nil && g.farewell != nil && epoch != g.epoch {
		g.epoch = epoch
		g.tell("epoch %d", epoch)
	}
}

// until tells the guard when the lease ends, by the boot clock, if that is news.
func (g *guard) until(end time.Duration) {
	if g == nil || end == g.end || end > g.end && end < g.end+time.Millisecond {
		return // a later end is told late at no risk, an earlier one is not
	}
	g.end = end
	g.tell("end %d", end)
}

// saidStop tells the guard that lk itself asks the command to stop. It is asked by
// one of them, once: a second TERM tells many a program to leave without cleaning up.
func (g *guard) saidStop() {
	if g != nil {
		g.asked = true
		g.tell("asked")
	}
}

func (g *guard) tell(format string, args ...any) {
	if g.orders == nil {
		return
	}
	_ = g.orders.SetWriteDeadline(time.Now().Add(ordersPatience))
	if _, err := fmt.Fprintf(g.orders, format+"\n", args...); errors.Is(err, os.ErrDeadlineExceeded) {
		_ = g.process.Kill() // it stands still, or it would have read; its end is seen by lk's loop, which starts another
	}
}

// left is received from when the guard has exited; then follow must be called.
func (g *guard) left() <-chan bool {
	if g == nil {
		return nil
	}
	return g.gone
}

// follow starts the next guard, unless the one that left had done all it could.
func (g *guard) follow(done bool) {
	g.orders.Close()
	g.process, g.orders, g.gone = nil, nil, nil
	if !done {
		g.start()
	}
}

// stop ends the guard and returns when it is dead: from then on the number of the
// command's group may be that of another one.
func (g *guard) stop() {
	if g == nil {
		return
	}
	if g.lifeline != nil {
		g.lifeline.Close()
	}
	if g.process == nil {
		return
	}
	_ = g.process.Kill()
	<-g.gone
	g.orders.Close()
	g.process, g.orders, g.gone = nil, nil, nil
}

// bootTime is what the boot clock shows: the same to all processes.
func bootTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(bootClock, &ts) // it fails only for a clock that is unknown
	return time.Duration(ts.Nano())
}
