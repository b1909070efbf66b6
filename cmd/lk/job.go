package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

// job is what lk run runs under its locks, and how.
type job struct {
	command         []string
	cleanup         string // for sh -c, after the command; "": none
	paths           string // one a line, since a path may contain any other character
	fence           uint64 // of the one hold of all paths; 0: several holds have them
	what            string // names the locks in messages
	ttl, maxHold    time.Duration
	onYield, onLost supervise.Action
}

// runHolding runs the command under the hold and releases it.
func (a *app) runHolding(client *connection, hold *lockkeeper.Hold, j job, signals chan os.Signal) error {
	if err := hold.Err(); err != nil {
		return err // lost already: lk stood still since the grant
	}
	env := environment(j.paths, j.fence, hold.Ref(), hold.Slot(), client.url)
	if a.traceparent != "" {
		env = append(env, a.traceparent)
	}
	how := a.supervision(client, hold, j)
	cleanupHow := how
	cleanupHow.Note, cleanupHow.Farewell = a.warn, nil
	s, err := supervise.Start(how, j.command, env)
	if err != nil {
		if lost := hold.Err(); lost != nil {
			return lost // the engine closed the session's file with the loss, so Start failed
		}
		hold.Close()
		return err
	}
	end, lost := s.Wait(signals)
	ended := time.Now()
	if awaitInner(client, hold) {
		ended = time.Now() // the engine answers: the time for inner holds does not count
	}
	cleaned := 0
	if j.cleanup != "" {
		cleaned = runCleanup(j.cleanup, append(env, "LK_EXIT="+strconv.Itoa(end.Code)), cleanupHow, signals)
		ended = time.Now()
	}
	unreleased := client.release(hold, ended.Add(releaseTime))
	if lost == nil && unreleased != "" {
		a.note("%s was not released: %s; it is free %s", j.what, unreleased,
			freeAfter(duration.Text(j.ttl), unreleased == leaderless))
	}
	return exitOf(end, lost, cleaned)
}

// exitOf returns the end of lk run: the loss of its locks, else the command's own end, else that of
// its clean-up.
func exitOf(end supervise.Exit, lost error, cleaned int) error {
	switch {
	case lost != nil:
		return &exit{code: exitLost, say: lost}
	case end.Code == 0 && cleaned == 0:
		return nil
	case end.Code == 0:
		return &exit{code: cleaned}
	case end.Interrupt != nil:
		died := interrupted(end.Interrupt)
		died.group = true
		return died
	}
	return &exit{code: end.Code}
}

// environment returns lk's own environment and the variables about a hold: the paths, a line each; the
// fence, 0 if no single hold has all of them; the slot of the first permits target, 0 if it has none; and
// the URL of the engine.
func environment(paths string, fence uint64, ref lockkeeper.Ref, slot int, url string) []string {
	slotText := ""
	if slot > 0 {
		slotText = strconv.Itoa(slot)
	}
	return append(os.Environ(),
		"LK_PATH="+paths,
		"LK_FENCE="+fenceText(fence),
		"LK_CLAIM="+ref.String(),
		"LK_SLOT="+slotText,
		engineVariable+"="+url,
	)
}

// fenceText returns a fence for LK_FENCE, which is empty without one.
func fenceText(fence uint64) string {
	if fence == 0 {
		return ""
	}
	return strconv.FormatUint(fence, 10)
}

// supervision says how to supervise the command under this hold.
func (a *app) supervision(client *connection, hold *lockkeeper.Hold, j job) supervise.Options {
	how := supervise.Options{
		Lease:   hold,
		Grace:   graceOf(j.ttl),
		OnLost:  j.onLost,
		OnYield: j.onYield,
		MaxHold: j.maxHold,
		What:    j.what,
		Note:    a.noteText,
		Session: client.sessionFile(hold.Ref().Session),
	}
	if e, ok := client.engine.(lockkeeper.Suspender); ok {
		how.Suspend = e.Suspend
	}
	if !a.quiet {
		how.Stderr = os.Stderr
	}
	if j.cleanup == "" { // the guard does not run the clean-up, so it must not free the lock
		how.Farewell = client.farewell(hold, j.ttl)
	}
	return how
}

// releaseTime bounds how long lk tries to release after the command has ended. If that
// fails, the TTL ends the session. So lk returns within 2 s.
const releaseTime = 1700 * time.Millisecond

// release releases the hold and closes the client, by that time at the latest. It returns why the
// release failed; "" if the hold was released, or was lost before.
//
// Closing leaves the session, which releases the hold too (R17), so on this machine it is enough: one
// commit instead of two. Over a network the release comes first, because its error says what is wrong: if the
// server is unreachable, leaving would only take as long.
func (c *connection) release(hold *lockkeeper.Hold, until time.Time) (unreleased string) {
	if c.Guarantees().Reach == lockkeeper.OnMachine {
		held := hold.Err() == nil
		c.closeBy(until)
		if held && !c.attached.left.Load() {
			unreleased = lockkeeper.RedactURL(c.url) + " did not answer"
		}
		return unreleased
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	err := hold.Release(ctx)
	switch {
	case errors.Is(err, lockkeeper.ErrUnavailable) && c.leaderless(err):
		unreleased = leaderless
		until = time.Now() // leaving would take as long
	case errors.Is(err, lockkeeper.ErrUnavailable):
		unreleased = lockkeeper.RedactURL(c.url) + " is unreachable"
		until = time.Now() // leaving would take as long
	case err != nil && !errors.Is(err, lockkeeper.ErrLost):
		unreleased = err.Error()
	}
	c.closeBy(until)
	return unreleased
}

// leaderless is why release fails at a cluster without a leader.
const leaderless = "the cluster has no leader"

// leaderless reports whether the engine is a cluster without a leader, by the error of a call or as it says itself.
func (c *connection) leaderless(err error) bool {
	return errors.Is(err, lockkeeper.QuorumLost) || errors.Is(lockkeeper.OutageOf(c.engine), lockkeeper.QuorumLost)
}

// freeAfter says when a lock is free that was not released, and whose lease lasts that long. In a cluster without a
// leader time stands still.
func freeAfter(lease string, leaderless bool) string {
	if leaderless {
		return "at most " + lease + " after the cluster has a leader again"
	}
	return "after at most " + lease
}

// closeBy closes the client, once, and returns at that time at the latest. The exit of
// lk ends the rest.
func (c *connection) closeBy(until time.Time) {
	if c.closed {
		return
	}
	c.closed = true
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.Close()
	}()
	select {
	case <-closed:
	case <-time.After(time.Until(until)):
	}
}

// runCleanup runs a shell command under the lease of how, with these variables, reports its
// failure, and returns its exit code. The rest of the lease bounds it as it bounds any command; if
// the lease is over, the script is not run. Only the main goroutine may call runCleanup.
func runCleanup(script string, env []string, how supervise.Options, signals chan os.Signal) (code int) {
	if err := how.Lease.Err(); err != nil {
		how.Note(fmt.Sprintf("the clean-up was not run, since others may hold the lock by now: %s", err))
		return exitLost
	}
	if how.OnLost == supervise.Warn {
		how.OnLost = supervise.Terminate // --on-lost is about the command
	}
	how.OnYield = supervise.Ignore
	how.Grace = min(how.Grace, how.Lease.Remaining()/4) // the command may have had most of what was left
	s, err := supervise.Start(how, []string{"sh", "-c", script}, env)
	if err != nil {
		how.Note(fmt.Sprintf("the clean-up: %s", err))
		var refused *supervise.StartError
		if errors.As(err, &refused) {
			return refused.Code
		}
		return exitNotExecutable
	}
	end, lost := s.Wait(signals)
	code = end.Code
	switch {
	case lost != nil:
		how.Note(fmt.Sprintf("the clean-up did not end in time: %s", lost))
		return exitLost
	case code != 0:
		how.Note(fmt.Sprintf("the clean-up failed with exit code %d", code))
	}
	return code
}

// withCleanup returns a command that runs the command and then its clean-up, for an lk that becomes
// that command.
func withCleanup(command []string, cleanup string) []string {
	const script = `cleanup=$1; shift; trap : INT QUIT TERM HUP
"$@"; LK_EXIT=$?; export LK_EXIT
sh -c "$cleanup"; cleaned=$?
[ $cleaned = 0 ] || echo "lk: the clean-up failed with exit code $cleaned" >&2
[ $LK_EXIT != 0 ] || exit $cleaned
exit $LK_EXIT`
	return append([]string{"sh", "-c", script, "lk", cleanup}, command...)
}
