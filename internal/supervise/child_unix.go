//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// forwarded are the signals that lk passes on to the child.
var forwarded = []os.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
}

// NotifySignals delivers the signals that [Supervisor.Wait] passes on. A signal that was ignored when
// lk started, as by nohup, stays ignored, for the child too.
func NotifySignals(to chan<- os.Signal) {
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(to, s)
		}
	}
}

// notifyStops delivers TSTP (Ctrl-Z) and CONT. lk passes TSTP on to a child that is not the
// terminal's foreground, since lk itself stops only after its child.
func notifyStops(to chan<- os.Signal) { signal.Notify(to, unix.SIGTSTP, unix.SIGCONT) }

func continues(s os.Signal) bool { return s == unix.SIGCONT }

// SignalNumber returns the number that the system has for a signal.
func SignalNumber(s os.Signal) int { return int(s.(syscall.Signal)) }

// IsInterrupt reports whether s is a signal that a terminal sends to its whole foreground.
func IsInterrupt(s os.Signal) bool { return s == unix.SIGINT || s == unix.SIGQUIT }

// signal returns the signal that an exit code stands for.
func (c *child) signal(code int) os.Signal { return syscall.Signal(code - SignalCode) }

// interrupted reports whether the child ended by the terminal's interrupt. The terminal sent it to the
// child's group, and not to the job of lk.
func (c *child) interrupted(code int) bool {
	return c.leads && !c.passed && code > SignalCode && IsInterrupt(c.signal(code))
}

// DieOf ends this process by a signal, and its whole process group with group. A shell stops a script
// only if its command died of the interrupt.
func DieOf(s os.Signal, group bool) {
	signal.Reset(s)
	to := os.Getpid()
	if group {
		to = 0
	}
	if unix.Kill(to, s.(syscall.Signal)) == nil && !signal.Ignored(s) {
		<-time.After(time.Second) // the signal arrives
	}
}

// FindCommand returns a [*StartError] if there is no such command, or it can't be executed.
func FindCommand(name string) error {
	if err := newCommand([]string{name}, nil).Err; err != nil {
		return startFailure(name, err)
	}
	return nil
}

// child is a running command in a process group of its own.
type child struct {
	group   group               // its process group; the number is its own process id
	tty     int                 // the standard file that is a terminal; -1 if none is
	leads   bool                // its group takes the place of lk's as the terminal's foreground
	passed  bool                // lk passed an interrupt on, so an interrupt that ends it may not be the terminal's
	halted  bool                // it was stopped, and has not been continued since
	exited  chan struct{}       // receives a value when it has ended; reap returns the exit code
	reaped  bool                // wait4 has returned its status
	code    int                 // its exit code, if reaped
	stopped chan syscall.Signal // receives the signal that stopped it, such as TSTP
}

// inherited calls start, which starts a process that inherits the non-nil files. lk must
// not start two processes at the same time.
func inherited(files []*os.File, start func() error) error {
	for _, file := range files {
		if file == nil {
			continue
		}
		defer unix.CloseOnExec(int(file.Fd())) // for this process alone
		// Not by exec.Cmd.ExtraFiles: its number for the file may belong to a file
		// that lk itself inherited for the same purpose.
		if _, err := unix.FcntlInt(file.Fd(), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	return start()
}

// startChild starts the command with lk's own standard files and the other non-nil
// files. Only the main goroutine may call it (see Start).
func startChild(command, env []string, inherits ...*os.File) (*child, error) {
	c := &child{
		tty:     terminal(),
		exited:  make(chan struct{}, 1),
		stopped: make(chan syscall.Signal, 1),
	}
	c.leads = c.lkLeads() && !isPipe(os.Stdout) // others in a pipeline, such as a pager, may need the terminal more
	attr := &syscall.SysProcAttr{Setpgid: true, Foreground: c.leads, Ctty: max(c.tty, 0)}
	dieWithParent(attr)
	cmd := newCommand(command, env)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = attr
	if err := inherited(inherits, cmd.Start); err != nil {
		return nil, startFailure(command[0], err)
	}
	c.group = openGroup(cmd.Process.Pid)
	cmd.Process.Release() // wait calls wait4 itself, which reports stops too
	go c.wait()
	return c, nil
}

// Replace makes this process the command; it returns only if it can't.
func Replace(command, env []string) error {
	cmd := newCommand(command, env)
	err := cmd.Err
	if err == nil {
		err = syscall.Exec(cmd.Path, cmd.Args, cmd.Env)
	}
	return startFailure(command[0], err)
}

// newCommand prepares the command; of names that are set twice in env the last wins.
func newCommand(command, env []string) *exec.Cmd {
	cmd := exec.Command(command[0], command[1:]...)
	if errors.Is(cmd.Err, exec.ErrDot) {
		cmd.Err = nil // a "." in PATH counts, as in a shell
	}
	cmd.Env = env
	cmd.Env = cmd.Environ()
	return cmd
}

// startFailure distinguishes a missing command from one that can't be executed, by the exit codes of
// a shell.
func startFailure(name string, err error) error {
	code := NotExecutable
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		code = NotFound
		if file := unexecutable(name); file != "" {
			return &StartError{NotExecutable, fmt.Errorf("%s can't be executed: it is no executable file", file)}
		}
	}
	return &StartError{code, fmt.Errorf("can't run the command: %s", startText(name, err))}
}

// startText says why a command can't be started, as a shell does.
func startText(name string, err error) string {
	var number syscall.Errno
	info, missing := os.Stat(name)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return name + ": command not found"
	case missing == nil && info.IsDir():
		return name + ": is a directory"
	case errors.Is(err, syscall.ENOEXEC):
		return name + ": it is no program for this computer, and a script begins with #!"
	case errors.As(err, &number):
		return name + ": " + number.Error()
	}
	return err.Error()
}

// unexecutable returns the first file of that name in PATH, which a shell would find and refuse to
// execute; "" if there is none.
func unexecutable(name string) string {
	if filepath.Base(name) != name {
		return ""
	}
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		file := filepath.Join(folder, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return file
		}
	}
	return ""
}

// wait reports every stop of the child, and its end.
func (c *child) wait() {
	for {
		over, err := awaitEnd(c.group.number)
		var status unix.WaitStatus
		if err == nil && !over {
			_, err = unix.Wait4(c.group.number, &status, unix.WUNTRACED, nil)
		}
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil && !over && status.Stopped():
			c.stopped <- status.StopSignal()
		default:
			if !over {
				c.record(status, err)
			}
			c.takeBack()
			c.exited <- struct{}{}
			return
		}
	}
}

// reap removes the ended child from the process table and returns its exit code. Afterwards the kernel
// may reuse its number, unless processes are left in its group.
func (c *child) reap() int {
	for !c.reaped {
		var status unix.WaitStatus
		if _, err := unix.Wait4(c.group.number, &status, 0, nil); !errors.Is(err, unix.EINTR) {
			c.record(status, err)
		}
	}
	return c.code
}

// record stores how the child ended.
func (c *child) record(status unix.WaitStatus, err error) {
	c.reaped = true
	switch {
	case err != nil:
		c.code = 1 // impossible: only this process can reap it
	case status.Signaled():
		c.code = SignalCode + int(status.Signal())
	default:
		c.code = status.ExitStatus()
	}
}

// forward passes a signal of lk on to the child's whole group. It continues a stopped group that is
// asked to end, as a shell's kill does.
func (c *child) forward(s os.Signal) {
	c.passed = c.passed || IsInterrupt(s)
	c.send(s.(syscall.Signal))
	if c.halted && (s == unix.SIGTERM || s == unix.SIGHUP) {
		c.send(unix.SIGCONT)
	}
}

// terminate sends TERM to the whole group, and continues it if it is stopped.
func (c *child) terminate() {
	c.send(unix.SIGTERM)
	c.send(unix.SIGCONT)
}

// kill ends the whole group.
func (c *child) kill() { c.send(unix.SIGKILL) }

func (c *child) send(s syscall.Signal) { _ = c.group.signal(s) }

// asksToEnd reports whether a signal asks a command to end.
func asksToEnd(s os.Signal) bool {
	return s == unix.SIGINT || s == unix.SIGTERM || s == unix.SIGHUP || s == unix.SIGQUIT
}

// groupRuns reports whether any process of the group runs.
func (c *child) groupRuns() bool { return c.group.runs() }

// stopWithIt stops lk and its whole job when its child was stopped, so that the shell that started
// the job prompts again. It reports whether the child should continue at once; otherwise the child
// continues with lk. If the child only needs the terminal and lk has it, the child gets it.
func (c *child) stopWithIt(by syscall.Signal, suspend func() (resume func())) (goOn bool) {
	c.halted = true
	switch {
	case c.tty < 0:
		return false // no job control: keep renewing until somebody continues the child
	case (by == unix.SIGTTIN || by == unix.SIGTTOU) && c.lkLeads():
		c.leads = true
		return true
	case !startedByShell():
		return by == unix.SIGTSTP // nobody could continue lk, so Ctrl-Z has no effect
	}
	c.takeBack()
	if suspend != nil {
		defer suspend()()
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	signal.Ignore(unix.SIGTSTP)          // lk itself stops by the STOP below
	unix.Kill(0, unix.SIGTSTP)           // the rest of the job, as Ctrl-Z would have stopped it
	unix.Kill(os.Getpid(), unix.SIGSTOP) // it may return before the process has stopped
	<-continued
	return false
}

// startedByShell reports whether lk's group is a job of a shell with job control. The group of the
// session's leader is not.
func startedByShell() bool {
	session, err := unix.Getsid(0)
	return err == nil && session != unix.Getpgrp()
}

// goOn continues a stopped child.
func (c *child) goOn() {
	if c.leads && c.lkLeads() {
		setForeground(c.tty, c.group.number)
	}
	c.halted = false
	c.send(unix.SIGCONT)
}

// lkLeads reports whether lk's own group is the terminal's foreground.
func (c *child) lkLeads() bool { return c.tty >= 0 && foreground(c.tty) == unix.Getpgrp() }

// takeBack makes lk's own group the terminal's foreground again, if the child's group is.
func (c *child) takeBack() {
	if c.tty >= 0 && foreground(c.tty) == c.group.number {
		setForeground(c.tty, unix.Getpgrp())
	}
}

// terminal returns the first standard file that is a terminal; -1 if none is.
func terminal() int {
	for fd := range 3 {
		if term.IsTerminal(fd) {
			return fd
		}
	}
	return -1
}

// foreground returns the process group that is the terminal's foreground; 0 without one.
func foreground(tty int) int {
	group, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// InForeground reports whether lk's own group is the foreground of the terminal of its stderr.
func InForeground() bool { return foreground(int(os.Stderr.Fd())) == unix.Getpgrp() }

func setForeground(tty, group int) {
	signal.Ignore(unix.SIGTTOU) // the kernel would stop a background group for this
	unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, group)
	signal.Reset(unix.SIGTTOU)
}
