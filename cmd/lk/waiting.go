package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

// silentFor is how long lk tries to queue before it notifies the user.
const silentFor = 2 * time.Second

// waitFor waits in line, and shows the user the holder.
func (a *app) waitFor(
	ctx context.Context, client *connection, o *runOptions, requests []lockkeeper.Request,
) (*lockkeeper.Hold, error) {
	if o.wait == 0 || o.quiet {
		return client.Acquire(ctx, requests...)
	}
	silence := time.AfterFunc(silentFor, func() {
		fmt.Fprintf(a.stderr, "lk: %s: not in line yet: the engine accepts no requests now; lk keeps asking (lk doctor "+
			"says what is wrong)\n", o.what())
	})
	var once sync.Once
	drains := func(err error) {
		silence.Stop()
		once.Do(func() {
			fmt.Fprintf(a.stderr, "lk: %s: not in line yet: %s; lk keeps asking\n", o.what(), words(err))
		})
	}
	client.attached.drains.Store(&drains)
	pending, err := client.Enqueue(ctx, requests...)
	silence.Stop()
	if err != nil {
		return nil, err
	}
	telling, stop := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() {
		defer close(told)
		a.tellWait(telling, client.Client, pending.Ref(), o)
	}()
	hold, err := pending.Wait(ctx)
	stop()
	<-told
	return hold, err
}

// tellWait writes a line when the position or the blocker changes, and every two minutes,
// until the claim no longer waits or ctx ends. It ignores errors, since it only informs.
func (a *app) tellWait(ctx context.Context, client *lockkeeper.Client, ref lockkeeper.Ref, o *runOptions) {
	began := time.Now()
	lines := spinner{to: a.stderr, text: func() string {
		return fmt.Sprintf("waiting for %s, Ctrl-C gives up", duration.Elapsed(time.Since(began)))
	}}
	defer lines.stop()
	teller := newWaitTeller(o.contest(), func(text string) { lines.say("lk: " + text + "\n") }, client)
	defer teller.stop()
	for {
		var failed error
		for status, err := range client.List(ctx, lockkeeper.Query{Ref: ref, Follow: true}) {
			if failed = err; err != nil {
				break
			}
			if status.State != lockkeeper.Waiting {
				return
			}
			teller.changed(ctx, status)
			if o.steal && !o.hinted {
				a.hintSteal(ctx, client, o, status.Blockers, teller.note)
			}
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

// stateEvery is how often lk repeats the state of a wait without a change: a CI system may
// end a job that prints nothing for ten minutes.
const stateEvery = 2 * time.Minute

// waitTeller prints the position and the blockers of a waiting claim, at each change and
// every stateEvery, until stop.
type waitTeller struct {
	contest
	note   func(text string)
	client *lockkeeper.Client
	quit   context.CancelFunc // nil before the first change
	ended  chan struct{}

	mu   sync.Mutex
	said string            // waitKey of the last printed status
	last lockkeeper.Status // the last one with blockers
}

func newWaitTeller(c contest, note func(text string), client *lockkeeper.Client) *waitTeller {
	return &waitTeller{contest: c, note: note, client: client, ended: make(chan struct{})}
}

// changed prints a status if it differs from the last one.
func (t *waitTeller) changed(ctx context.Context, status lockkeeper.Status) {
	if status.State != lockkeeper.Waiting {
		return
	}
	if t.quit == nil {
		ctx, t.quit = context.WithCancel(ctx)
		go t.repeat(ctx, status.Ref)
	}
	if len(status.Blockers) == 0 { // not every answer has evidence
		if status = t.look(ctx, status.Ref); status.State != lockkeeper.Waiting {
			return
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if waitKey(status) != t.said {
		t.say(status)
	}
}

// look reads the status of the claim; it is zero on an error.
func (t *waitTeller) look(ctx context.Context, ref lockkeeper.Ref) lockkeeper.Status {
	for status, err := range t.client.List(ctx, lockkeeper.Query{Ref: ref}) {
		if err == nil {
			return status
		}
	}
	return lockkeeper.Status{}
}

// stop ends the repetition.
func (t *waitTeller) stop() {
	if t.quit != nil {
		t.quit()
		<-t.ended
	}
}

func (t *waitTeller) repeat(ctx context.Context, ref lockkeeper.Ref) {
	defer close(t.ended)
	tick := time.NewTicker(stateEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if status := t.look(ctx, ref); status.State == lockkeeper.Waiting {
			t.mu.Lock()
			t.say(status)
			t.mu.Unlock()
		}
	}
}

// say prints a status. If nothing blocks the claim any more, it waits for the engine to end
// the last holder. The caller holds t.mu.
func (t *waitTeller) say(status lockkeeper.Status) {
	t.said = waitKey(status)
	if len(status.Blockers) > 0 {
		t.last = status
	} else if before := t.last.Blockers; len(before) > 0 && len(ownReasons(status)) == 0 {
		t.note(fmt.Sprintf("%s: waiting for the engine to end %s, which has not renewed%s",
			t.name(before), who(before[0].Label, before[0].Ref), t.others()))
		return
	}
	t.note("waiting for " + t.line(status))
}

// hintSteal prints, once, that --steal asks nobody because the holder's priority is not lower.
func (a *app) hintSteal(
	ctx context.Context, client *lockkeeper.Client, o *runOptions, blocked []lockkeeper.Blocker, note func(string),
) {
	if o.hinted || !o.steal || len(blocked) == 0 || blocked[0].Why != lockkeeper.HeldBy {
		return
	}
	for holder, err := range client.List(ctx, lockkeeper.Query{Ref: blocked[0].Ref, Brief: true}) {
		if err != nil || holder.State != lockkeeper.Held || holder.Priority < o.priority {
			return
		}
		have := fmt.Sprintf("and you have %d", o.priority)
		if holder.Priority == o.priority {
			have = "and so have you"
		}
		o.hinted = true
		note(fmt.Sprintf("--steal asks nobody: the holder has priority %d, %s; see --priority", holder.Priority, have))
		return
	}
}

// spinner writes lines, and on a terminal shows below them that time goes by,
// until it is stopped. It shows nothing but ASCII, and less of it than the
// terminal is wide, since a line that wraps can't be erased.
type spinner struct {
	to   io.Writer
	text func() string // what it shows; called by one goroutine at a time

	mu    sync.Mutex
	drawn bool          // there is something to erase
	frame int           // of the animation
	quit  chan struct{} // nil: it does not turn
	ended chan struct{} // closed when it has stopped turning
}

const (
	spinnerFrames = `|/-\`
	spinnerPause  = 125 * time.Millisecond
	eraseLine     = "\r\x1b[K"
)

// say writes a line; with the first one it begins to turn.
func (s *spinner) say(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	io.WriteString(s.to, line)
	s.start()
}

// start has it turn, if it does not yet.
func (s *spinner) start() {
	if s.quit == nil && canErase(s.to) {
		s.quit, s.ended = make(chan struct{}), make(chan struct{})
		go s.turn()
	}
}

// stop leaves no trace but the lines.
func (s *spinner) stop() {
	if s.quit != nil {
		close(s.quit)
		<-s.ended
	}
}

func (s *spinner) turn() {
	defer close(s.ended)
	tick := time.NewTicker(spinnerPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.draw()
		case <-s.quit:
			s.mu.Lock()
			s.erase()
			s.mu.Unlock()
			return
		}
	}
}

func (s *spinner) draw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !supervise.InForeground() {
		s.drawn = false // the shell has moved on to a line of its own
		return
	}
	text := fmt.Sprintf("%c %s", spinnerFrames[s.frame%len(spinnerFrames)], s.text())
	if width, _, err := term.GetSize(int(os.Stderr.Fd())); err != nil || len(text) >= width {
		return
	}
	io.WriteString(s.to, eraseLine+text)
	s.drawn = true
	s.frame++
}

func (s *spinner) erase() {
	if s.drawn {
		io.WriteString(s.to, eraseLine)
		s.drawn = false
	}
}

// canErase reports whether w is a terminal that can erase what it shows.
func canErase(w io.Writer) bool {
	kind := os.Getenv("TERM")
	return w == stderr && term.IsTerminal(int(os.Stderr.Fd())) && kind != "" && kind != "dumb"
}
