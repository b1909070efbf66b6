package top

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// Terminal is where Run draws, and where keys come from.
type Terminal struct {
	In    *os.File // a terminal
	Out   *os.File // likewise
	To    io.Writer
	Color bool
}

// redraw is how often the screen follows the time and the size of the terminal.
const redraw = 250 * time.Millisecond

// Run runs the program until a person quits, ctx ends or the terminal is gone. messages are for
// Update; do performs an action in the background and returns its outcome. Run leaves the terminal as
// it was.
func Run(ctx context.Context, t Terminal, m Model, messages <-chan any, do func(Action) string) error {
	before, err := term.MakeRaw(int(t.In.Fd()))
	if err != nil {
		return err
	}
	defer term.Restore(int(t.In.Fd()), before)
	io.WriteString(t.To, "\x1b[?1049h\x1b[?25l\x1b[?7l") // another screen, no cursor, no line breaks
	defer io.WriteString(t.To, "\x1b[?7h\x1b[?25h\x1b[?1049l")
	pressed, done := make(chan Key), make(chan Done, 1)
	go readKeys(ctx, t.In, pressed)
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	drawn := ""
	for busy := false; ; {
		if cols, rows, err := term.GetSize(int(t.Out.Fd())); err == nil && cols > 0 && rows > 0 {
			m, _ = m.Update(Size{cols, rows})
		}
		if frame := frame(m.View(time.Now()), t.Color); frame != drawn {
			if _, err := io.WriteString(t.To, frame); err != nil {
				return err
			}
			drawn = frame
		}
		var act Action
		select {
		case key, ok := <-pressed:
			if !ok {
				return nil // the terminal is gone
			}
			m, act = m.Update(key)
		case message := <-messages:
			m, _ = m.Update(message)
		case outcome := <-done:
			m, _ = m.Update(outcome)
			busy = false
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		switch {
		case act.Act == Quit:
			return nil
		case act.Act != None && busy:
			m, _ = m.Update(Done{"the engine has not answered the action before: nothing was done"})
		case act.Act != None:
			busy = true
			go func() { done <- Done{do(act)} }()
		}
	}
}

// readKeys sends keys until the terminal is gone or ctx ends.
func readKeys(ctx context.Context, in io.Reader, pressed chan<- Key) {
	defer close(pressed)
	buffer, rest := make([]byte, 256), ""
	for {
		n, err := in.Read(buffer)
		if err != nil {
			return
		}
		var list []Key
		list, rest = keys(rest + string(buffer[:n]))
		for _, key := range list {
			select {
			case pressed <- key:
			case <-ctx.Done():
				return
			}
		}
	}
}

// frame is what draws lines on a terminal, from its upper left.
func frame(lines []Line, color bool) string {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		style := map[Style]string{Strong: "\x1b[1m", Selected: "\x1b[7m", Warning: "\x1b[1m"}[line.Style]
		if color && line.Style == Warning {
			style = "\x1b[1;31m"
		}
		b.WriteString("\x1b[K" + style + line.Text + "\x1b[0m")
	}
	b.WriteString("\x1b[J")
	return b.String()
}
