package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// silentFor is how long lk tries to queue before it prints that it is not in line yet.
const silentFor = 2 * time.Second

// wanted says what lk run waits for, and how.
type wanted struct {
	contest
	targets      []lockkeeper.Target
	options      []lockkeeper.Request // of the claim, beside its targets and the wait
	wait         time.Duration        // from began; 0: don't wait
	began        time.Time
	bound        time.Duration // from began: how long lk tries to be in line
	as           string
	steal        bool
	priority     int
	conflictCode int

	hinted bool // hintSteal has printed its hint
}

// acquire takes the targets, some of the wanted ones, and prints on stderr what it waits for. A signal
// ends the wait.
func (a *app) acquire(
	ctx context.Context, client *connection, w *wanted, targets []lockkeeper.Target, signals <-chan os.Signal,
) (*lockkeeper.Hold, error) {
	ctx, over := stoppedBy(ctx, signals, anySignal)
	hold, err := a.wait(ctx, client, w, w.requests(targets))
	waited := time.Since(w.began)
	if stopped := over(); stopped != nil {
		if hold != nil {
			hold.Close()
		}
		return nil, stopped
	}
	if err == nil || codeOf(err) != exitNotAcquired {
		return hold, err
	}
	refused := &exit{code: w.conflictCode}
	if a.quiet {
		return nil, refused
	}
	var e *lockkeeper.Error
	if errors.As(err, &e) {
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), hintPatience)
		w.hintSteal(asking, client.Client, e.Blocked, a.noteText)
		cancel()
	}
	refused.say = w.refusal(err, waited)
	return nil, refused
}

// requests returns the claim of these targets.
func (w *wanted) requests(targets []lockkeeper.Target) []lockkeeper.Request {
	all := slices.Clone(w.options)
	for _, t := range targets {
		switch t.Mode {
		case lockkeeper.ModeShared:
			all = append(all, lockkeeper.Shared(string(t.Path)))
		case lockkeeper.ModePermits:
			all = append(all, lockkeeper.Permits(string(t.Path), t.Units, t.Limit))
		default:
			all = append(all, lockkeeper.Exclusive(string(t.Path)))
		}
	}
	if len(w.around) > 0 {
		all = append(all, lockkeeper.WithInside(w.around[0].Ref))
	}
	wait := w.wait
	if wait != 0 && wait != lockkeeper.Forever {
		wait = restOf(w.began, wait)
	}
	return append(all, lockkeeper.WithWait(wait))
}

// wait waits in line, and prints the holder.
func (a *app) wait(
	ctx context.Context, client *connection, w *wanted, requests []lockkeeper.Request,
) (*lockkeeper.Hold, error) {
	if w.wait == 0 || a.quiet {
		return client.Acquire(ctx, requests...)
	}
	silence := time.AfterFunc(silentFor, func() {
		a.note("%s: not in line yet: the engine accepts no requests now; lk keeps asking for %s (lk doctor says what is "+
			"wrong)", w.all(), duration.Text(w.bound))
	})
	var once sync.Once
	drains := func(err error) {
		silence.Stop()
		once.Do(func() {
			a.note("%s: not in line yet: %s; lk keeps asking for %s", w.all(), words(err), duration.Text(w.bound))
		})
	}
	client.attached.drains.Store(&drains)
	pending, err := client.Enqueue(ctx, requests...)
	silence.Stop()
	if err != nil {
		return nil, err
	}
	if hold, err := grantedAlready(ctx, pending); err == nil {
		return hold, nil
	}
	reporting, stop := context.WithCancel(ctx)
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		a.reportWait(reporting, client.Client, pending.Ref(), w)
	}()
	hold, err := pending.Wait(ctx)
	stop()
	<-reported
	return hold, err
}

// grantedAlready returns the hold if the claim is granted by now, and else an error.
func grantedAlready(ctx context.Context, pending *lockkeeper.Pending) (*lockkeeper.Hold, error) {
	ctx, end := context.WithCancel(ctx)
	end()
	return pending.Wait(ctx)
}

// reportWait writes a line when the position or the blocker changes, and every two minutes, until the
// claim no longer waits or ctx ends. It ignores errors, since it only informs.
func (a *app) reportWait(ctx context.Context, client *lockkeeper.Client, ref lockkeeper.Ref, w *wanted) {
	began := time.Now()
	lines := spinner{to: a.stderr, text: func() string {
		return fmt.Sprintf("waiting for %s, Ctrl-C gives up", duration.Elapsed(time.Since(began)))
	}}
	defer lines.stop()
	report := newWaitReport(w.contest, func(text string) { lines.say("lk: " + text + "\n") }, client)
	defer report.stop()
	for {
		var failed error
		for status, err := range client.List(ctx, lockkeeper.Query{Ref: ref, Follow: true}) {
			if failed = err; err != nil {
				break
			}
			if status.State != lockkeeper.Waiting {
				return
			}
			report.changed(ctx, status)
			w.hintSteal(ctx, client, status.Blockers, report.print)
		}
		if !errors.Is(failed, lockkeeper.ErrUnavailable) || client.Guarantees().Reach != lockkeeper.OnNetwork {
			return
		}
		select {
		case <-time.After(networkPause):
		case <-ctx.Done():
			return
		}
	}
}

// refusal says who has the locks, or else why they were not acquired.
func (w *wanted) refusal(err error, waited time.Duration) error {
	var e *lockkeeper.Error
	if !errors.As(err, &e) {
		return err
	}
	if text := w.deadlock(e); text != "" {
		return errors.New(text)
	}
	if e.Reason != lockkeeper.TimedOut || len(e.Blocked) == 0 {
		bare := *e
		bare.Op, bare.Path = "", ""
		return fmt.Errorf("%s: %w", w.all(), &bare)
	}
	name, text := w.name(e.Blocked), w.blockedText(e.Blocked, e.Position)+grabbedAs(w.as, e.Blocked)+w.others()
	switch {
	case w.wait == 0:
		return fmt.Errorf("%s is taken: %s", name, text)
	case waited < w.wait:
		return fmt.Errorf("%s will not be free within %s: %s", name, duration.Exact(w.wait), text)
	}
	return fmt.Errorf("%s is still taken after %s: %s", name, duration.Exact(w.wait), text)
}

// hintSteal prints, once, that --steal asks nobody because the holder's priority is not lower.
func (w *wanted) hintSteal(
	ctx context.Context, client *lockkeeper.Client, blocked []lockkeeper.Blocker, print func(string),
) {
	if w.hinted || !w.steal || len(blocked) == 0 || blocked[0].Why != lockkeeper.HeldBy {
		return
	}
	for holder, err := range client.List(ctx, lockkeeper.Query{Ref: blocked[0].Ref, Brief: true}) {
		if err != nil || holder.State != lockkeeper.Held || holder.Priority < w.priority {
			return
		}
		have := fmt.Sprintf("and you have %d", w.priority)
		if holder.Priority == w.priority {
			have = "and so have you"
		}
		w.hinted = true
		print(fmt.Sprintf("--steal asks nobody: the holder has priority %d, %s; see --priority", holder.Priority, have))
		return
	}
}
