package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

// spinner writes lines, and on a terminal an animated line below them, until it is stopped. That line
// is ASCII and shorter than the terminal is wide, since a wrapped line can't be erased.
type spinner struct {
	to   io.Writer
	text func() string // what it shows; called by one goroutine at a time

	mu    sync.Mutex
	drawn bool          // there is something to erase
	frame int           // of the animation
	quit  chan struct{} // nil: not started
	ended chan struct{} // closed when the animation has stopped
}

const (
	spinnerFrames = `|/-\`
	spinnerPause  = 125 * time.Millisecond
	eraseLine     = "\r\x1b[K"
)

// say writes a line, and starts the animation.
func (s *spinner) say(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	io.WriteString(s.to, line)
	s.start()
}

// start starts the animation, once.
func (s *spinner) start() {
	if s.quit == nil && canErase(s.to) {
		s.quit, s.ended = make(chan struct{}), make(chan struct{})
		go s.turn()
	}
}

// stop erases the animated line.
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
