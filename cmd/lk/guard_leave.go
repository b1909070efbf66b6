//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine"
)

// lifeline is the file by which a guard sees whether anything of the command runs: the
// reading end of a pipe. The command and all that it starts inherit the other end, also
// those that leave its process group. Nobody writes. It is the guard's standard output,
// which has no other use, and so needs no number of its own.
const lifeline = 1

const (
	// leaveTime bounds the one attempt to leave. The TTL does the same, later.
	leaveTime = 2 * time.Second
	// firstLook and lastLook are pauses between looks whether anything of the command runs.
	firstLook = time.Millisecond
	lastLook  = time.Second
)

// readFarewell is nil if text is none; then the guard does not leave.
func readFarewell(text string) *farewell {
	var f farewell
	if json.Unmarshal([]byte(text), &f) != nil {
		return nil
	}
	return &f
}

// leave ends the session of lk, which is dead, so that others need not wait for its TTL.
// It does so only when nothing of the command can run any more, and tries once. A call of
// lk that is still on its way changes nothing after that: its session is over, and if the
// session was attached under a later epoch than the guard knows, the engine refuses to
// leave it.
func (w *watch) leave() {
	if w.farewell == nil || w.epoch == 0 {
		return
	}
	until := w.end
	if until == 0 {
		until = bootTime() + w.farewell.TTL
	}
	if !w.awaitNothing(until) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	left := make(chan struct{})
	go func() {
		defer close(left)
		w.farewell.leave(ctx, w.epoch)
	}()
	select {
	case <-left:
	case <-ctx.Done(): // what it still does ends with this process
	}
}

// leave leaves the session under that epoch. Nobody is left to act on an error.
func (f *farewell) leave(ctx context.Context, epoch uint64) {
	for _, variable := range f.Environment {
		name, value, _ := strings.Cut(string(variable), "=")
		_ = os.Setenv(name, value) // not visible to other processes, as what a process starts with is
	}
	e, err := engine.New(ctx, lookingURL(string(f.URL)))
	if err != nil {
		return
	}
	_ = e.End(ctx, lockkeeper.Key{Session: f.Session, Epoch: epoch}, lockkeeper.Ending{Kind: lockkeeper.Leave})
	_ = e.Close()
}

// awaitNothing waits until nothing of the command can run, and reports whether it saw
// that before the boot clock showed until.
func (w *watch) awaitNothing(until time.Duration) bool {
	for pause := firstLook; bootTime() < until; pause = min(2*pause, lastLook) {
		if !lifelineClosed() {
			waitReadable(lifeline, until) // its end can be read
			pause = firstLook
			continue
		}
		if w.nothingRuns() {
			return true
		}
		waitReadable(-1, min(bootTime()+pause, until))
	}
	return false
}

// nothingRuns reports whether lk is dead, and nothing of the command runs. The lifeline is
// closed. What has closed it by itself can still be in the group, or may be seen to
// descend from the command.
func (w *watch) nothingRuns() bool {
	session, err := unix.Getsid(0)
	return err == nil && unix.Getppid() != w.farewell.LK && !w.group.runs() && !mayDescend(w.group.began, session)
}

// lifelineClosed reports whether no process has the other end of the lifeline open.
func lifelineClosed() bool {
	_ = unix.SetNonblock(lifeline, true)
	var written [512]byte
	for {
		n, err := unix.Read(lifeline, written[:])
		switch {
		case n > 0 || errors.Is(err, unix.EINTR): // what somebody wrote to an unknown file
		default:
			return n == 0 && err == nil
		}
	}
}
