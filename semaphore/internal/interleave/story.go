package interleave

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// Source returns a line of the code under test, for stories. The test sets it.
var Source = func(file string, line int) string { return "" }

// story is an execution as text.
type story struct{ b strings.Builder }

func (s *story) String() string { return s.b.String() }

func (s *story) event(g *goroutine, text string) {
	fmt.Fprintf(&s.b, "%s %s\n", who(g), text)
}

func (s *story) operation(g *goroutine, op operation, result, a, b uint64) {
	s.line(g, op.describe(result, a, b))
}

// use adds the use of a guarded field.
func (s *story) use(g *goroutine) { s.line(g, "no Lock") }

func (s *story) line(g *goroutine, what string) {
	file, line := place()
	at := fmt.Sprintf("%s:%d", filepath.Base(file), line)
	fmt.Fprintf(&s.b, "%s     %-14s %-29s %s\n", who(g), at, what, strings.TrimSpace(Source(file, line)))
}

func who(g *goroutine) string {
	if g == nil {
		return "-        "
	}
	return fmt.Sprintf("%c %-7.7s", 'A'+g.index, g.label)
}

// place returns the position in the code under test: the innermost frame outside this package.
func place() (file string, line int) {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		if !strings.Contains(frame.Function, "/internal/interleave.") || !more {
			return frame.File, frame.Line
		}
	}
}
