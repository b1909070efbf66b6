//go:build unix

package supervise

import (
	"errors"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// processPoll is the pause between two checks of a process without a pidfd.
const processPoll = time.Second

// pollProcess is WatchProcess without pidfds.
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

// awaitNone polls until there is no process of that number.
func awaitNone(pid int) {
	tick := time.NewTicker(processPoll)
	defer tick.Stop()
	for processLives(pid) {
		<-tick.C
	}
}

// processLives reports whether there is a process of that number, of any user.
func processLives(pid int) bool {
	err := unix.Kill(pid, 0)
	return err == nil || errors.Is(err, unix.EPERM)
}

// EndsKeeping reports whether a signal asks lk keep to end.
func EndsKeeping(s os.Signal) bool {
	return s == unix.SIGINT || s == unix.SIGTERM || s == unix.SIGQUIT
}

// SurviveBrokenPipes lets lk go on when nobody reads its output any more. Unlike an ignored signal,
// children do not inherit this.
func SurviveBrokenPipes() { signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) }

// OutliveTerminal lets lk, and processes that it starts from now on, survive the end of the terminal.
func OutliveTerminal() { signal.Ignore(unix.SIGHUP) }
