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
)

// silentFor is how long an engine may leave a request without an answer before the
// user is told.
const silentFor = 2 * time.Second

// waitFor waits in line, and tells the user for whom.
func (a *app) waitFor(ctx context.Context, client *lockkeeper.Client, o *runOptions, requests []lockkeeper.Request) (*lockkeeper.Hold, error) {
	if o.wait == 0 || o.quiet {
		return client.Acquire(ctx, requests...)
	}
	silence := time.AfterFunc(silentFor, func() {
		fmt.Fprintf(a.stderr, "lk: %s: not in line yet, since the engine takes no request just now; lk goes on asking (lk doctor says what is wrong)\n", o.what())
	})
	pending, err := client.Enqueue(ctx, requests...)
	silence.Stop()
	if err != nil {
		return nil, err
	}
	telling, stop := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() {
		defer close(told)
		a.tellWait(telling, client, pending.Ref(), o)
	}()
	hold, err := pending.Wait(ctx)
	stop()
	<-told
	return hold, err
}

// tellWait writes a line whenever the place in line changes, or who is in the
// way, until the claim waits no longer or ctx ends. It only informs: while the
// engine can't tell, it says nothing.
func (a *app) tellWait(ctx context.Context, client *lockkeeper.Client, ref lockkeeper.Ref, o *runOptions) {
	began := time.Now()
	lines := spinner{to: a.stderr, text: func() string {
		return fmt.Sprintf("waiting for %s, Ctrl-C gives up", passed(time.Since(began)))
	}}
	defer lines.stop()
	said := ""
	for {
		var failed error
		for status, err := range client.List(ctx, lockkeeper.Query{Ref: ref, Follow: true}) {
			if failed = err; err != nil {
				break
			}
			if status.State != lockkeeper.Waiting {
				return
			}
			if key := waitKey(status); key != said {
				lines.say(fmt.Sprintf("lk: waiting for %s: %s\n", o.what(), waitLine(status)))
				said = key
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
	if !inForeground() {
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
