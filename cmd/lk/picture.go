package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/lockkeeper/lockkeeper/internal/load"
)

// look is the style of pictures.
type look struct {
	width  int  // of a line
	blocks bool // bars use block characters, in steps of an eighth of a column
	color  bool
}

// plainWidth is the width of output to anything but a terminal.
const plainWidth = 80

// lookOf returns the look for a writer: plain, unless it is a terminal with more abilities.
func lookOf(w io.Writer) look {
	l := look{width: plainWidth}
	file, ok := w.(*os.File)
	if kind := os.Getenv("TERM"); !ok || !term.IsTerminal(int(file.Fd())) || kind == "" || kind == "dumb" {
		return l
	}
	if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
		l.width = width
	}
	locale := cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG"))
	locale = strings.ReplaceAll(strings.ToLower(locale), "-", "")
	l.blocks = strings.HasSuffix(locale, "utf8")
	l.color = os.Getenv("NO_COLOR") == ""
	return l
}

const (
	scaleWidth   = 8  // of the durations at the left
	leastColumn  = 12 // of a picture; pictures that don't fit side by side go below
	widestColumn = 60
	gap          = 2 // before each column
)

// draw draws the histograms of the outcomes side by side: a row for each step of the scale, with a
// bar for the count of that step. The longest bar of each outcome fills its column.
func (l look) draw(to io.Writer, outcomes []*outcome) {
	beside := max(1, (l.width-scaleWidth)/(leastColumn+gap))
	for some := range slices.Chunk(outcomes, beside) {
		l.drawBeside(to, some)
	}
}

func (l look) drawBeside(to io.Writer, outcomes []*outcome) {
	width := max(min((l.width-scaleWidth)/len(outcomes)-gap, widestColumn), 1)
	begin, end := len(load.Steps()), 0
	counts := make([][]uint64, len(outcomes))
	heads := make([]string, len(outcomes))
	for i, o := range outcomes {
		counts[i] = o.Took.BySteps()
		begin = min(begin, slices.IndexFunc(counts[i], func(n uint64) bool { return n > 0 }))
		end = max(end, len(counts[i]))
		heads[i] = padded(plural(o.clients, "client"), width)
	}
	row(to, "up to", heads)
	for at := begin; at < end; at++ {
		bars := make([]string, len(outcomes))
		for i, column := range counts {
			if bars[i] = strings.Repeat(" ", width); at < len(column) {
				bars[i] = l.bar(column[at], slices.Max(column), width)
			}
		}
		row(to, load.Steps()[at].String(), bars)
	}
}

func row(to io.Writer, head string, cells []string) {
	line := strings.Repeat(" ", scaleWidth-utf8.RuneCountInString(head)) + head
	for _, cell := range cells {
		line += strings.Repeat(" ", gap) + cell
	}
	fmt.Fprintln(to, strings.TrimRight(line, " "))
}

// padded returns text at that width, padded or cut.
func padded(text string, width int) string {
	if n := utf8.RuneCountInString(text); n < width {
		return text + strings.Repeat(" ", width-n)
	}
	return text[:min(len(text), width)]
}

// bar draws a count n; most fills the width. A count above 0 is visible, however small.
func (l look) bar(n, most uint64, width int) string {
	if n == 0 {
		return strings.Repeat(" ", width)
	}
	per := 1 // parts of a column
	if l.blocks {
		per = 8
	}
	parts := max(1, int(math.Round(float64(n)/float64(most)*float64(width*per))))
	var bar string
	switch {
	case l.blocks:
		bar = strings.Repeat("█", parts/8) + eighths[parts%8]
	case float64(n)/float64(most)*float64(width) < 0.5:
		bar = "."
	default:
		bar = strings.Repeat("#", parts)
	}
	space := strings.Repeat(" ", width-utf8.RuneCountInString(bar))
	if l.color {
		bar = "\x1b[36m" + bar + "\x1b[0m"
	}
	return bar + space
}

// eighths[n] fills n eighths of a column from the left.
var eighths = [...]string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}
