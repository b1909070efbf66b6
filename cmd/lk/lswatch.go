package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/cells"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/listing"
)

// watchList prints the list after every change, until it is interrupted.
func (a *app) watchList(ctx context.Context, o *lsOptions) error {
	if !signal.Ignored(os.Interrupt) {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt)
		defer stop()
	}
	client, err := a.awaitFile(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if o.path == "" && !o.json {
		a.hidden(client)
	}
	p := &listPrinter{to: a.stdout, errs: a.stderr, lsOptions: o, width: a.width()}
	show, finish := p.show, func() {}
	if size := a.screenSize(); size != nil && !o.json {
		screen := &listScreen{lsOptions: o, to: a.stdout, size: size}
		show, finish = screen.show, screen.start()
	}
	err = listing.Follow(ctx, client, lockkeeper.Query{Meets: o.path}, show)
	finish()
	if ctx.Err() != nil {
		return interrupted(os.Interrupt)
	}
	return err
}

// screenSize returns what reads the size of the terminal to which lk writes; nil if that is no
// terminal, or one that can't move its cursor.
func (a *app) screenSize() func() (columns, rows int, err error) {
	kind := os.Getenv("TERM")
	if a.stdout != stdout || !term.IsTerminal(int(os.Stdout.Fd())) || kind == "" || kind == "dumb" {
		return nil
	}
	return func() (int, int, error) { return term.GetSize(int(os.Stdout.Fd())) }
}

// width returns the columns of the terminal to which lk writes; 0 if that is no terminal.
func (a *app) width() int {
	if a.stdout != stdout {
		return 0
	}
	columns, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// listPrinter prints every list that differs from the one before in more than durations.
type listPrinter struct {
	*lsOptions
	to, errs io.Writer
	width    int // of the terminal, as draw has it
	begun    bool
	last     string // fingerprint of the list that was printed last
	lost     bool   // the engine can't be read
}

// listJSON is the JSON form of a list.
type listJSON struct {
	Time   time.Time           `json:"time"` // when the list was true
	Error  string              `json:"error,omitempty"`
	Claims []lockkeeper.Status `json:"claims"`
}

func (p *listPrinter) show(r listing.Reading) error {
	lost, print := r.Err != nil, listing.Fingerprint(r.All)
	same := p.begun && p.last == print
	if same && p.lost == lost {
		return nil
	}
	was := p.lost
	p.begun, p.last, p.lost = true, print, lost
	if p.json {
		doc := listJSON{Time: r.At, Claims: append([]lockkeeper.Status{}, r.All...)}
		if lost {
			doc.Error = readingText(r.Err)
		}
		return writeJSON(p.to, doc)
	}
	switch {
	case lost && !was:
		fmt.Fprintf(p.errs, "lk: as of %s: %s; lk ls goes on\n", r.At.Format(time.TimeOnly), readingText(r.Err))
	case was && !lost:
		fmt.Fprintln(p.errs, "lk: it can be read again")
	}
	if same {
		return nil
	}
	var block bytes.Buffer // one Write, so that a reader never sees half a list
	fmt.Fprintln(&block, r.At.Format(time.TimeOnly))
	if err := p.draw(&block, r.All, p.width); err != nil {
		return err
	}
	_, err := p.to.Write(append(block.Bytes(), '\n'))
	return err
}

// draw writes the list as lk ls does on a terminal of that width; without one it is 0.
func (o *lsOptions) draw(to io.Writer, all []lockkeeper.Status, width int) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(to, nothingListed(o.path))
		return err
	}
	rows := newTable(to, width, o.long)
	rows.header()
	for _, s := range all {
		rows.rows(s)
	}
	return rows.flush()
}

// readingText says why a list is old.
func readingText(err error) string {
	var e *lockkeeper.Error
	if ago, stale := lockkeeper.Stale(err); stale && errors.As(err, &e) {
		return fmt.Sprintf("the state of %s before: %s", duration.Elapsed(ago), e.Detail)
	}
	if errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &e) {
		return "the engine does not answer"
	}
	return words(err)
}

// listScreen draws the latest list on a terminal, again every second, because durations change.
type listScreen struct {
	*lsOptions
	to      io.Writer
	size    func() (columns, rows int, err error)
	latest  chan listing.Reading
	stopped chan struct{}
}

// start starts to draw; the function that it returns ends that.
func (s *listScreen) start() (finish func()) {
	s.latest, s.stopped = make(chan listing.Reading), make(chan struct{})
	go s.run()
	return func() {
		close(s.latest)
		<-s.stopped
	}
}

func (s *listScreen) show(r listing.Reading) error {
	s.latest <- r
	return nil
}

func (s *listScreen) run() {
	defer close(s.stopped)
	r, ok := <-s.latest
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ok {
		if columns, rows, err := s.size(); err == nil {
			io.WriteString(s.to, s.frame(r, time.Now(), columns, rows))
		}
		select {
		case r, ok = <-s.latest:
		case <-tick.C:
		}
	}
}

// frame is the picture of r: a line about the list, then as much of it as there is room for. It
// begins at the upper left and leaves the cursor below the list.
func (s *listScreen) frame(r listing.Reading, now time.Time, columns, rows int) string {
	all, ago := r.All, now.Sub(r.At)
	head := now.Format(time.TimeOnly) + "  Ctrl-C ends"
	if r.Err == nil {
		all = listing.Aged(all, ago)
	} else {
		head = fmt.Sprintf("as of %s, %s ago: %s", r.At.Format(time.TimeOnly), duration.Elapsed(ago), readingText(r.Err))
	}
	var table strings.Builder
	if err := s.draw(&table, all, columns); err != nil {
		return ""
	}
	lines := slices.Concat([]string{head}, strings.Split(strings.TrimSuffix(table.String(), "\n"), "\n"))
	if most := max(1, rows-1); len(lines) > most {
		hidden := len(lines) - most + 1
		lines = append(lines[:most-1], fmt.Sprintf("and %s below", plural(hidden, "line")))
	}
	var b strings.Builder
	b.WriteString("\x1b[H")
	for _, line := range lines {
		b.WriteString("\x1b[K" + cells.Cut(cells.Clean(line), columns) + "\r\n")
	}
	b.WriteString("\x1b[J")
	return b.String()
}
