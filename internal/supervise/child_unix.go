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

// forwarded are the signals that the child gets when lk gets them.
var forwarded = []os.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
}

// NotifySignals delivers the signals that lk passes on. One that whoever started
// lk had ignored, as nohup does, stays ignored, for the child too.
func NotifySignals(to chan<- os.Signal) {
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(to, s)
		}
	}
}

// notifyStops delivers the terminal's stop (Ctrl-Z), which lk passes on to a
// child that is not the terminal's foreground, since lk itself stops only after
// its child; and what continues lk.
func notifyStops(to chan<- os.Signal) { signal.Notify(to, unix.SIGTSTP, unix.SIGCONT) }

func continues(s os.Signal) bool { return s == unix.SIGCONT }

// SignalNumber returns the number that the system has for a signal.
func SignalNumber(s os.Signal) int { return int(s.(syscall.Signal)) }

// IsInterrupt reports whether s is one that a terminal sends to its whole foreground.
func IsInterrupt(s os.Signal) bool { return s == unix.SIGINT || s == unix.SIGQUIT }

// signal is the one that an exit code tells of.
func (c *child) signal(code int) os.Signal { return syscall.Signal(code - SignalCode) }

// interrupted reports whether the child ended by the terminal's interrupt, which
// went to the child's group and not to the job that lk is part of.
func (c *child) interrupted(code int) bool {
	return c.leads && !c.heard && code > SignalCode && IsInterrupt(c.signal(code))
}

// DieOf ends lk by a signal, and all of its job if the rest has not got it: a
// shell stops a script only if its command died of the interrupt.
func DieOf(s os.Signal, group bool) {
	signal.Reset(s)
	to := os.Getpid()
	if group {
		to = 0
	}
	if unix.Kill(to, s.(syscall.Signal)) == nil && !signal.Ignored(s) {
		<-time.After(time.Second) // it is on its way
	}
}

// FindCommand refuses a command that can't be executed.
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
	leads   bool                // it was given the terminal: while lk's group is its foreground, the child's is instead
	heard   bool                // lk passed an interrupt on to it, so that one it dies of may not be the terminal's
	halted  bool                // it was stopped, and has not been continued since
	exited  chan struct{}       // it has ended; reap tells how
	reaped  bool                // it was waited for
	code    int                 // then: its exit code
	stopped chan syscall.Signal // it was stopped by this signal, as by Ctrl-Z
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
// files. Only the main goroutine may call it (see init).
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
	cmd.Process.Release() // it is waited for here, where stops are seen too
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
		cmd.Err = nil // who has "." in PATH wants it, as in a shell
	}
	cmd.Env = env
	cmd.Env = cmd.Environ()
	return cmd
}

// startFailure tells what can't be executed from what is not there, by the
// exit codes of a shell.
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

// unexecutable is the first file of that name in PATH, which a shell would find
// and refuse to execute.
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
				c.note(status, err)
			}
			c.takeBack()
			c.exited <- struct{}{}
			return
		}
	}
}

// reap waits for the child, which has ended, and returns its exit code. From then
// on its number may be another's, unless it left processes in its group.
func (c *child) reap() int {
	for !c.reaped {
		var status unix.WaitStatus
		if _, err := unix.Wait4(c.group.number, &status, 0, nil); !errors.Is(err, unix.EINTR) {
			c.note(status, err)
		}
	}
	return c.code
}

// note takes down how the child ended.
func (c *child) note(status unix.WaitStatus, err error) {
	c.reaped = true
	switch {
	case err != nil:
		c.code = 1 // can't be: nobody else waits for it
	case status.Signaled():
		c.code = SignalCode + int(status.Signal())
	default:
		c.code = status.ExitStatus()
	}
}

// forward sends a signal that lk got to the child's whole group. A stopped one is
// woken to hear that it should end, as a shell's kill does.
func (c *child) forward(s os.Signal) {
	c.heard = c.heard || IsInterrupt(s)
	c.send(s.(syscall.Signal))
	if c.halted && (s == unix.SIGTERM || s == unix.SIGHUP) {
		c.send(unix.SIGCONT)
	}
}

// terminate asks the whole group to stop; one that is stopped is woken to hear it.
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

// stopWithIt stops lk and its whole job when its child was stopped, so that the
// shell that started the job gets its prompt back. It reports whether the child
// should go on at once; else the signal that continues lk says so. A child that
// only lacks the terminal gets it, if lk has it.
func (c *child) stopWithIt(by syscall.Signal) (goOn bool) {
	c.halted = true
	switch {
	case c.tty < 0:
		return false // nobody does job control: go on renewing for whoever stopped it
	case (by == unix.SIGTTIN || by == unix.SIGTTOU) && c.lkLeads():
		c.leads = true
		return true
	case !startedByShell():
		return by == unix.SIGTSTP // nobody could continue lk, so that Ctrl-Z means nothing, as to any program there
	}
	c.takeBack()
	signal.Ignore(unix.SIGTSTP)          // as for lk itself: it has to stop here and now
	unix.Kill(0, unix.SIGTSTP)           // the rest of the job, as Ctrl-Z would have stopped it
	unix.Kill(os.Getpid(), unix.SIGSTOP) // the next statement runs when lk is continued
	return false
}

// startedByShell reports whether lk's job is one of a shell with job control: the
// group of the session's leader is nobody's job.
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

// takeBack makes lk's own group the terminal's foreground again, if the child's is.
func (c *child) takeBack() {
	if c.tty >= 0 && foreground(c.tty) == c.group.number {
		setForeground(c.tty, unix.Getpgrp())
	}
}

// terminal is the first standard file that is a terminal; -1 if none is.
func terminal() int {
	for fd := range 3 {
		if term.IsTerminal(fd) {
			return fd
		}
	}
	return -1
}

// foreground is the process group that is the terminal's foreground; 0 if there is none.
func foreground(tty int) int {
	group, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// InForeground reports whether lk's own group is the foreground of the terminal
// that it tells things on.
func InForeground() bool { return foreground(int(os.Stderr.Fd())) == unix.Getpgrp() }

func setForeground(tty, group int) {
	signal.Ignore(unix.SIGTTOU) // else a background group that does this is stopped
	unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, group)
	signal.Reset(unix.SIGTTOU)
}
