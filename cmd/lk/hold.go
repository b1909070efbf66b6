package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

// run is lk run: take the locks, run the command, release.
func (a *app) run(ctx context.Context, o *runOptions) error {
	signals := make(chan os.Signal, 16)
	supervise.NotifySignals(signals)
	defer signal.Stop(signals)

	if err := supervise.FindCommand(o.command[0]); err != nil {
		return err // before an hour in line
	}
	opening, opened := stoppedBy(ctx, signals, anySignal)
	o.began = time.Now()
	client, err := a.reach(opening, o.trial(), lockkeeper.SessionTTL(o.ttl), lockkeeper.SessionLabel(o.labels()))
	stopped := opened()
	if err == nil {
		defer func() { client.closeBy(time.Now().Add(releaseTime)) }()
	}
	if stopped != nil {
		return stopped
	}
	if err != nil {
		return err
	}
	a.noteReach(client, o.quiet)

	for {
		holds, err := enclosing(ctx, client)
		if err != nil {
			return err
		}
		targets := uncovered(holds, o.targets)
		o.around = holds
		if len(targets) == 0 {
			client.Close()
			if o.cleanup != "" {
				o.command = withCleanup(o.command, o.cleanup)
			}
			return o.become(signals)
		}
		requests := o.requests(targets)
		if len(holds) > 0 {
			requests = append(requests, lockkeeper.WithInside(holds[0].Ref))
		}
		hold, err := a.acquire(ctx, client, o, requests, signals)
		if lostPlace(err) && o.wait == lockkeeper.Forever {
			a.noteUnless(o.quiet)(o.what() + ": lk stood still for longer than its TTL and lost its place in line; it waits " +
				"again")
			continue
		}
		if err != nil {
			return err
		}
		// Of a run that was left in the background the runs around it may have
		// ended while it waited: then what they covered has to be claimed too.
		if len(targets) < len(o.targets) {
			holds, err = enclosing(ctx, client)
		}
		if err != nil || len(uncovered(holds, o.targets)) > len(targets) {
			hold.Close()
			continue
		}
		return a.runHolding(client, hold, o, signals)
	}
}

// lostPlace reports whether a wait ended because this process stood still for
// longer than its session lives, as by Ctrl-Z.
func lostPlace(err error) bool {
	return errors.Is(err, lockkeeper.Expired) || errors.Is(err, lockkeeper.Suspended)
}

// acquire takes the locks, and tells on stderr whom it waits for. A signal ends
// the wait.
func (a *app) acquire(
	ctx context.Context, client *connection, o *runOptions, requests []lockkeeper.Request, signals <-chan os.Signal,
) (*lockkeeper.Hold, error) {
	ctx, over := stoppedBy(ctx, signals, anySignal)
	hold, err := a.waitFor(ctx, client, o, requests)
	waited := time.Since(o.began)
	if stopped := over(); stopped != nil {
		if hold != nil {
			hold.Close()
		}
		return nil, stopped
	}
	if err != nil && codeOf(err) == exitNotAcquired {
		var e *lockkeeper.Error
		if errors.As(err, &e) && !o.quiet {
			asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), innerPatience)
			a.hintSteal(asking, client.Client, o, e.Blocked, a.noteUnless(false))
			cancel()
		}
		refused := &exit{code: o.conflictCode, say: taken(o, err, waited)}
		if o.quiet {
			refused.say = nil
		}
		return nil, refused
	}
	return hold, err
}

// anySignal has lk end with whatever its child would be told.
func anySignal(os.Signal) bool { return true }

// stoppedBy is a context that ends with the first signal that stops, and what to call when
// it is over: that answers what lk ends with if there was one, else nil.
func stoppedBy(ctx context.Context, signals <-chan os.Signal,
	stops func(os.Signal) bool) (context.Context, func() error) {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for ctx.Err() == nil {
			select {
			case s := <-signals:
				if stops(s) {
					cancel(interrupted(s))
				}
			case <-ctx.Done():
			}
		}
	}()
	return ctx, func() error {
		cancel(nil)
		<-watched
		var stopped *exit
		if errors.As(context.Cause(ctx), &stopped) {
			return stopped
		}
		return nil
	}
}

// noteReach prints the warnings of opening the engine. In CI it also warns that the
// default engine excludes only processes of this machine.
func (a *app) noteReach(client *connection, quiet bool) {
	if quiet {
		return
	}
	if e, ok := client.engine.(lockkeeper.Noticer); ok {
		for _, f := range e.Notices() {
			fmt.Fprintf(a.stderr, "lk: warning: %s: %s\n", f.Detail, f.Remedy)
		}
	}
	if ci := os.Getenv("CI"); client.named || ci == "" || ci == "false" {
		return
	}
	fmt.Fprintf(a.stderr, "lk: no engine is named, so this excludes %s; name one with %s=lk://HOST or sqlite:FILE\n",
		defaultReach(), engineVariable)
}

// label fills in what others will read of this hold where the user said nothing.
func (o *runOptions) label() {
	if o.as == "" {
		o.as = thisProcess()
	}
	if o.note == "" && len(o.command) > 0 {
		o.note = printable(filepath.Base(o.command[0]), lockkeeper.MaxNoteBytes) // not the arguments: they may hold secrets
	}
}

// thisProcess names this lk, so that it can be found: "user@host:PID".
func thisProcess() string {
	pid := ":" + strconv.Itoa(os.Getpid())
	return printable(userAtHost(), lockkeeper.MaxAsBytes-len(pid)) + pid
}

// userAtHost names the user of lk, by the number where it has no name.
func userAtHost() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if name == "" && os.Getuid() >= 0 {
		name = fmt.Sprintf("uid%d", os.Getuid())
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return printable(name, lockkeeper.MaxAsBytes)
}

// environment is what the child sees of its lock, beside lk's own environment.
func environment(hold *lockkeeper.Hold, o *runOptions, url string) []string {
	slot := ""
	if n := hold.Slot(); n > 0 {
		slot = strconv.Itoa(n)
	}
	return append(os.Environ(),
		"LK_PATH="+o.paths(),
		"LK_FENCE="+strconv.FormatUint(hold.Fence(), 10),
		"LK_CLAIM="+hold.Ref().String(),
		"LK_SLOT="+slot,
		engineVariable+"="+url,
	)
}

// paths are the paths as LK_PATH has them: one a line, since a path may contain
// anything else.
func (o *runOptions) paths() string {
	paths := make([]string, len(o.targets))
	for i, t := range o.targets {
		paths[i] = string(t.Path)
	}
	return strings.Join(paths, "\n")
}

// runHolding runs the command under the hold and releases it.
func (a *app) runHolding(client *connection, hold *lockkeeper.Hold, o *runOptions, signals chan os.Signal) error {
	if err := hold.Err(); err != nil {
		return err // lost already: lk stood still since the grant
	}
	env, session := environment(hold, o, client.url), client.sessionFile(hold.Ref().Session)
	if a.traceparent != "" {
		env = append(env, a.traceparent)
	}
	how := o.supervision(hold, session)
	how.Note = a.noteUnless(o.quiet)
	after := how
	after.Note = a.noteUnless(false)
	if o.cleanup == "" { // the guard does not run the clean-up, so it must not free the lock
		how.Farewell = client.farewell(hold, o.ttl)
	}
	s, err := supervise.Start(how, o.command, env)
	if err != nil {
		if lost := hold.Err(); lost != nil {
			return lost // and with it the session's file
		}
		hold.Close()
		return err
	}
	end, err := s.Wait(signals)
	code := end.Code
	ended := time.Now()
	if awaitInner(client, hold) {
		ended = time.Now() // the engine answers: the time for inner holds does not count
	}
	cleaned := 0
	if o.cleanup != "" {
		cleaned = runCleanup(o.cleanup, append(env, exitVariable(code)), after, signals)
		ended = time.Now()
	}
	unreleased := client.release(hold, ended.Add(releaseTime))
	switch {
	case err != nil:
		return &exit{code: exitLost, say: err}
	case unreleased != "":
		how.Note(fmt.Sprintf("%s was not released: %s; it is free after at most %s", o.what(), unreleased,
			duration.Text(o.ttl)))
	}
	if code == 0 {
		code = cleaned
	}
	switch {
	case code == 0:
		return nil
	case end.Interrupt != nil:
		died := interrupted(end.Interrupt)
		died.group = true
		return died
	}
	return &exit{code: code}
}

// releaseTime bounds how long lk tries to release after the command has ended. If that
// fails, the TTL ends the session. So lk returns within 2 s.
const releaseTime = 1700 * time.Millisecond

// release releases the hold, closes the client, and returns why the release failed
// until then; "" if the hold was released, or was lost before.
func (c *connection) release(hold *lockkeeper.Hold, until time.Time) (unreleased string) {
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	err := hold.Release(ctx)
	switch {
	case errors.Is(err, lockkeeper.ErrUnavailable):
		unreleased = lockkeeper.RedactURL(c.url) + " is unreachable"
		until = time.Now() // leaving would take as long
	case err != nil && !errors.Is(err, lockkeeper.ErrLost):
		unreleased = err.Error()
	}
	c.closeBy(until)
	return unreleased
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

// supervision says how to supervise commands under this hold.
func (o *runOptions) supervision(hold *lockkeeper.Hold, session *os.File) supervise.Options {
	how := supervise.Options{
		Lease:   hold,
		Grace:   o.grace(),
		OnLost:  o.onLost,
		OnYield: o.onYield,
		MaxHold: o.maxHold,
		What:    o.what(),
		Session: session,
	}
	if !o.quiet {
		how.Stderr = os.Stderr
	}
	return how
}

// interrupted is the end of lk by a signal. Of the terminal's interrupts it dies.
func interrupted(s os.Signal) *exit {
	e := &exit{code: exitSignal + supervise.SignalNumber(s)}
	if supervise.IsInterrupt(s) {
		e.signal = s
	}
	return e
}

// taken says who has it, or else why it was not acquired.
func taken(o *runOptions, err error, waited time.Duration) error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) {
		return err
	}
	c := o.contest()
	if text := c.deadlock(e); text != "" {
		return errors.New(text)
	}
	if e.Reason != lockkeeper.TimedOut || len(e.Blocked) == 0 {
		bare := *e
		bare.Op, bare.Path = "", ""
		return fmt.Errorf("%s: %w", o.what(), &bare)
	}
	name, text := c.name(e.Blocked), c.blockedText(e.Blocked)+grabbedAs(o.as, e.Blocked)+c.others()
	switch {
	case o.wait == 0:
		return fmt.Errorf("%s is taken: %s", name, text)
	case waited < o.wait:
		return fmt.Errorf("%s will not be free within %s: %s", name, duration.Exact(o.wait), text)
	}
	return fmt.Errorf("%s is still taken after %s: %s", name, duration.Exact(o.wait), text)
}

// noteUnless returns a function that writes lines of lk's own to stderr.
func (a *app) noteUnless(quiet bool) func(string) {
	return func(text string) {
		if !quiet {
			fmt.Fprintf(a.stderr, "lk: %s\n", text)
		}
	}
}
