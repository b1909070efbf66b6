//go:build unix

package supervise

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lifeline is the reading end of a pipe. The command and its descendants inherit the other
// end, even if they leave the process group. The pipe reaches its end when none of them
// has it open. Nobody writes to it. It is the guard's standard output, which the guard
// does not use otherwise.
const lifeline = 1

const (
	// leaveTime bounds the only attempt to leave. If it fails, the TTL ends the session.
	leaveTime = 2 * time.Second
	// firstLook and lastLook are the shortest and longest pause between two checks whether
	// any process of the command runs.
	firstLook = time.Millisecond
	lastLook  = time.Second
)

// order is how to leave the session of the dead lk.
type order struct {
	lk   int           // process number
	ttl  time.Duration // of the session
	text []byte        // Farewell.Order
}

// readOrder parses text. It returns nil if text is invalid; then the guard does not leave.
func readOrder(text string) *order {
	var o order
	if n, err := fmt.Sscan(text, &o.lk, (*int64)(&o.ttl)); n != 2 || err != nil {
		return nil
	}
	for range 2 {
		_, text, _ = strings.Cut(text, " ")
	}
	o.text = []byte(text)
	return &o
}

// leaveSession ends the session of the dead lk, so that waiters need not wait for its TTL. It
// first waits until no process of the command can run, and tries once. A call of lk that
// arrives later changes nothing, since its session has ended. If lk attached the session
// under a later epoch than the guard knows, the engine refuses the leave.
func (w *watch) leaveSession() {
	if w.farewell == nil || w.epoch == 0 {
		return
	}
	until := w.end
	if until == 0 {
		until = bootTime() + w.farewell.ttl
	}
	if !w.awaitNothing(until) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	left := make(chan struct{})
	go func() {
		defer close(left)
		w.leave(ctx, w.farewell.text, w.epoch)
	}()
	select {
	case <-left:
	case <-ctx.Done(): // the exit of this process ends the attempt
	}
}

// awaitNothing waits until no process of the command can run, and reports whether that was
// so before the boot clock showed until.
func (w *watch) awaitNothing(until time.Duration) bool {
	for pause := firstLook; bootTime() < until; pause = min(2*pause, lastLook) {
		if !lifelineClosed() {
			waitReadable(lifeline, until) // readable: the pipe reached its end
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

// nothingRuns reports whether lk is dead and no process of the command runs. The lifeline
// is closed. Processes that closed it themselves can still be in the group, or be
// descendants of the command.
func (w *watch) nothingRuns() bool {
	session, err := unix.Getsid(0)
	return err == nil && unix.Getppid() != w.farewell.lk && !w.group.runs() && !mayDescend(w.group.began, session)
}

// lifelineClosed reports whether no process has the other end of the lifeline open.
func lifelineClosed() bool {
	_ = unix.SetNonblock(lifeline, true)
	var written [512]byte
	for {
		n, err := unix.Read(lifeline, written[:])
		switch {
		case n > 0 || errors.Is(err, unix.EINTR): // a process wrote to a file that it did not know
		default:
			return n == 0 && err == nil
		}
	}
}
