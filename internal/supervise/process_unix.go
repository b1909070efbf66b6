//go:build unix

package supervise

import (
	"errors"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// processPoll is how often a process is looked at where the kernel does not tell.
const processPoll = time.Second

// pollProcess is WatchProcess where the kernel does not tell of an end.
func pollProcess(pid int) (<-chan struct{}, error) {
	if !processLives(pid) {
		return nil, ErrNoProcess
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		awaitNone(pid)
	}()
	return ended, nil
}

// awaitNone looks now and then until there is no process of that number.
func awaitNone(pid int) {
	tick := time.NewTicker(processPoll)
	defer tick.Stop()
	for processLives(pid) {
		<-tick.C
	}
}

// processLives reports whether there is a process of that number, whosever it is.
func processLives(pid int) bool {
	err := unix.Kill(pid, 0)
	return err == nil || errors.Is(err, unix.EPERM)
}

// EndsKeeping reports whether a signal asks lk keep to end.
func EndsKeeping(s os.Signal) bool {
	return s == unix.SIGINT || s == unix.SIGTERM || s == unix.SIGQUIT
}

// SurviveBrokenPipes lets lk go on when nobody reads what it says any more. Unlike
// an ignored signal that is not inherited by its children.
func SurviveBrokenPipes() { signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) }

// OutliveTerminal has lk, and what it starts from now on, go on when the terminal
// is closed.
func OutliveTerminal() { signal.Ignore(unix.SIGHUP) }
