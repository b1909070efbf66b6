package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

// The exit codes of lk, apart from a child's own. From 69 on they are those of
// sysexits.h and of the shell.
const (
	exitFailure       = 1  // none of the others
	exitUsage         = 2  // bad usage or input
	exitAlready       = 7  // of lk drain --unless-version: the server has that version
	exitUnavailable   = 69 // the engine can't be reached
	exitNotAcquired   = 75 // the lock is taken; -E names another code
	exitLost          = 76 // the lock was lost before the child ended
	exitDenied        = 77 // not allowed
	exitNotExecutable = supervise.NotExecutable
	exitNotFound      = supervise.NotFound
	exitSignal        = supervise.SignalCode // plus the number of the signal that ended it
)

const exitHelp = "Exit codes: the command's own, or\n" + exitCodesTable

const exitCodesTable = `  2    bad usage
  69   the engine can't be reached
  75   not acquired: it is taken (-E names another code)
  76   the lock was lost, and the command was stopped before that
  77   denied
  126  the command can't be executed
  127  the command was not found
  128+n  signal n ended the command, or the wait for the lock`

// exit is an error that knows its exit code.
type exit struct {
	code int
	say  error // printed for the user; nil: nothing
	// the terminal's interrupt, of which lk dies as any program does, so that the script around it
	// stops too; nil: none
	signal os.Signal
	group  bool // the script did not receive that signal, since the child was the terminal's foreground
}

func (e *exit) Error() string {
	if e.say == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.say.Error()
}

func (e *exit) Unwrap() error { return e.say }

// exitCode prints err and returns its exit code.
func (a *app) exitCode(err error) int {
	var e *exit
	if !errors.As(err, &e) {
		e = &exit{code: codeOf(err), say: err}
	}
	if e.say != nil {
		fmt.Fprintf(a.stderr, "lk: %s\n", words(e.say))
	}
	a.interrupt, a.interruptGroup = e.signal, e.group
	return e.code
}

// reportBadUsage prints all problems of the arguments, a line for each.
func (a *app) reportBadUsage(cmd *cobra.Command, err error) int {
	list := []string{err.Error()}
	var p *problems
	if errors.As(err, &p) {
		list = p.list
	}
	for _, text := range list {
		fmt.Fprintf(a.stderr, "%s: %s%s\n", program(cmd), flagOf(cmd, text), text)
	}
	return exitUsage
}

// codeOf returns the exit code of an error. For an error of the package lockkeeper its own sentinel
// decides, not its cause.
func codeOf(err error) int {
	var refused *supervise.StartError
	if errors.As(err, &refused) {
		return refused.Code
	}
	var e *lockkeeper.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	for _, known := range [...]struct {
		err  error
		code int
	}{
		{lockkeeper.ErrInvalid, exitUsage},
		{lockkeeper.ErrUnsupported, exitUsage},
		{lockkeeper.ErrUnavailable, exitUnavailable},
		{lockkeeper.ErrNotAcquired, exitNotAcquired},
		{lockkeeper.ErrDeadlock, exitNotAcquired},
		{lockkeeper.ErrLost, exitLost},
		{lockkeeper.ErrNotHeld, exitLost},
		{lockkeeper.ErrSession, exitLost},
		{lockkeeper.ErrDenied, exitDenied},
	} {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	return exitFailure
}
