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

// guard is lk's side of the guard process: it starts the process, sends it orders, replaces it when
// it dies, and kills it when the command has ended. KILL also ends a stopped guard. The guard has a
// process group of its own, so signals for lk's job or for the command do not reach it.
//
// Methods of a nil guard do nothing.
type guard struct {
	what    string   // names the locks in messages
	stderr  *os.File // for those messages; nil: none
	session *os.File // see startGuard
	note    func(string)

	process *os.Process
	orders  *os.File
	exited  chan bool // receives a value when it has exited; true: without an error
	starts  int

	// The orders sent so far, for the next guard if this one dies.
	group    group
	grace    time.Duration
	end      time.Duration // of the lease, by the boot clock; 0: not sent yet
	asked    bool          // lk has sent TERM to the command
	farewell *Farewell     // nil: the guard must not leave
	epoch    uint64        // of the session's latest attach
	lifeline *os.File      // the end that the guard reads; nil without farewell
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

// start starts a guard, or the next one, and sends it all orders so far. Only the goroutine that
// starts the command may call it: see inherited.
func (g *guard) start() {
	g.process, g.orders, g.exited = nil, nil, nil
	if g.starts++; g.starts > mostGuards {
		g.note("the guard was killed again and again: if lk is killed too, processes of the command may run on")
		return
	}
	if err := g.launch(); err != nil {
		g.note(fmt.Sprintf("no guard (%s): if lk is killed, processes of the command may run on", err))
		return
	}
	if g.farewell != nil {
		g.send("leave %d %d %s", os.Getpid(), g.farewell.TTL, g.farewell.Order)
		g.send("epoch %d", g.epoch)
	}
	if g.group.number != 0 {
		g.sendGroup()
	}
	if g.end != 0 {
		g.send("end %d", g.end)
	}
	if g.asked {
		g.send("asked")
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
	exited := make(chan bool, 1)
	go func() { exited <- cmd.Wait() == nil }()
	g.process, g.orders, g.exited = cmd.Process, orders, exited
	return nil
}

// ownProgram returns the file of the running program, even if another file has its name by now.
func ownProgram() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	return os.Executable()
}

// watch orders the guard to watch that group, and to send TERM so long before the end of the lease.
func (g *guard) watch(group group, grace time.Duration) {
	if g != nil {
		g.group, g.grace = group, grace
		g.sendGroup()
	}
}

func (g *guard) sendGroup() { g.send("group %d %d %d", g.group.number, g.grace, g.group.began) }

// attached sends the guard the epoch of the session's latest attach, if it changed.
func (g *guard) attached(epoch uint64) {
	if g != nil && g.farewell != nil && epoch != g.epoch {
		g.epoch = epoch
		g.send("epoch %d", epoch)
	}
}

// until sends the end of the lease, by the boot clock, if it changed. A later end may arrive late
// without risk, so changes of less than a millisecond are not sent.
func (g *guard) until(end time.Duration) {
	if g == nil || end == g.end || end > g.end && end < g.end+time.Millisecond {
		return
	}
	g.end = end
	g.send("end %d", end)
}

// termSent reports to the guard that lk itself sends TERM. Only one of them does: many programs exit
// without cleaning up at the second TERM.
func (g *guard) termSent() {
	if g != nil {
		g.asked = true
		g.send("asked")
	}
}

func (g *guard) send(format string, args ...any) {
	if g.orders == nil {
		return
	}
	_ = g.orders.SetWriteDeadline(time.Now().Add(ordersPatience))
	if _, err := fmt.Fprintf(g.orders, format+"\n", args...); errors.Is(err, os.ErrDeadlineExceeded) {
		_ = g.process.Kill() // it stands still; its exit makes Wait start another
	}
}

// ended returns a channel that receives a value when the guard has exited. Then call replace.
func (g *guard) ended() <-chan bool {
	if g == nil {
		return nil
	}
	return g.exited
}

// replace starts the next guard, unless the last one had finished its work.
func (g *guard) replace(finished bool) {
	g.orders.Close()
	g.process, g.orders, g.exited = nil, nil, nil
	if !finished {
		g.start()
	}
}

// stop kills the guard and returns when it is dead. Afterwards the command may be reaped, and the
// number of its group may become that of another group.
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
	<-g.exited
	g.orders.Close()
	g.process, g.orders, g.exited = nil, nil, nil
}

// bootTime reads the boot clock, which is the same for all processes.
func bootTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(bootClock, &ts) // it fails only for an unknown clock
	return time.Duration(ts.Nano())
}
