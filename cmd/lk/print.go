package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/cells"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/listing"
)

// who names a claim for people: its owner, else its reference.
func who(label lockkeeper.Label, ref lockkeeper.Ref) string { return listing.OwnerName(label, ref) }

// about returns the note and link of a claim in brackets, after a space; empty if it has none.
func about(label lockkeeper.Label) string {
	switch {
	case label.Note != "" && label.Link != "":
		return " (" + label.Note + ", " + label.Link + ")"
	case label.Note+label.Link != "":
		return " (" + label.Note + label.Link + ")"
	}
	return ""
}

// blockerText describes a blocker: "held by ci-17 for 2m (nightly)".
func blockerText(b lockkeeper.Blocker) string {
	var text string
	switch b.Why {
	case lockkeeper.Frozen:
		text = fmt.Sprintf("frozen by %s%s", who(b.Label, b.Ref), about(b.Label))
	case lockkeeper.AskedToYield:
		text = fmt.Sprintf("held by %s for %s%s, asked to yield", who(b.Label, b.Ref), duration.Elapsed(b.Age),
			about(b.Label))
	default:
		text = fmt.Sprintf("%s %s for %s%s", b.Why, who(b.Label, b.Ref), duration.Elapsed(b.Age), about(b.Label))
	}
	return text + leftText(b.Left)
}

// leftText says how long something still lasts, if that is known.
func leftText(d time.Duration) string {
	if d <= 0 || d == lockkeeper.Forever {
		return ""
	}
	return ", for at most " + duration.Remaining(d) + " more"
}

// waitLine describes in one line the blocker and the position of a waiting claim:
// "held by ci-17 for 2m (nightly load test), 2nd in line".
func waitLine(status lockkeeper.Status) string {
	var reason string
	separator := ", "
	if len(status.Blockers) > 0 {
		reason = blockerText(status.Blockers[0])
		if more := moreText(status.Blockers, status.Position); more != "" {
			reason, separator = reason+more, "; "
		}
	} else if own := ownReasons(status); len(own) > 0 {
		reason = own[0]
	}
	var place []string
	if text := positionText(status); text != "" {
		place = append(place, text)
	}
	if status.ETA > 0 {
		place = append(place, "about "+duration.Remaining(status.ETA)+" to go")
	}
	switch {
	case reason == "" && len(place) == 0:
		return "it is taken"
	case reason == "": // the holder's lease is over, and nothing else blocks
		reason = "the engine has yet to end a holder that has not renewed"
	case len(place) == 0:
		return reason
	}
	return reason + separator + strings.Join(place, ", ")
}

// isFrozen reports whether a freeze forbids a waiting claim (R18). It is then in no queue.
func isFrozen(status lockkeeper.Status) bool {
	return slices.Contains(status.Waits, lockkeeper.Frozen) ||
		len(status.Blockers) > 0 && status.Blockers[0].Why == lockkeeper.Frozen
}

// positionText: "2nd in line"; empty if the claim has no position, or if that says nothing because the claim waits
// for the end of a freeze.
func positionText(status lockkeeper.Status) string {
	if status.Position <= 0 || isFrozen(status) {
		return ""
	}
	return ordinal(status.Position) + " in line"
}

// moreText counts the blockers after the first, if there are any. The engine names at most MaxBlockers, and some
// engines fewer of the waiters ahead of a position, so there may be others.
func moreText(named []lockkeeper.Blocker, position int) string {
	n, ahead := len(named)-1, position-1
	for _, b := range named {
		if b.Why == lockkeeper.Behind {
			ahead--
		}
	}
	least := ""
	if len(named) >= lockkeeper.MaxBlockers || ahead > 0 {
		least = "at least "
	}
	switch {
	case n <= 0:
		return ""
	case n == 1:
		return "; " + least + "1 more is in the way"
	}
	return fmt.Sprintf("; %s%d more are in the way", least, n)
}

// waitKey is equal for statuses whose waitLine differs in durations alone.
func waitKey(status lockkeeper.Status) string {
	key := fmt.Sprint(status.Position)
	if len(status.Blockers) > 0 {
		key += fmt.Sprint(status.Blockers[0].Ref, status.Blockers[0].Why)
	}
	return key
}

func ordinal(n int) string {
	suffix := "th"
	if tens := n / 10 % 10; tens != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

// plural counts things: "1 session", "2 sessions".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// modeText returns the mode of a target; "1 of 3" for permits.
func modeText(t lockkeeper.Target) string {
	if t.Mode == lockkeeper.ModePermits {
		return fmt.Sprintf("%d of %d", t.Units, t.Limit)
	}
	return t.Mode.String()
}

// table writes claims for people, a row for each of their targets. On a terminal the rows fit into its width:
// the longest texts are shortened. Elsewhere every text is whole.
type table struct {
	to    io.Writer
	width int  // columns of the terminal; 0 if there is none
	long  bool // with the references of claims
	cells [][]string
}

func newTable(to io.Writer, width int, long bool) *table {
	return &table{to: to, width: width, long: long}
}

func (t *table) header() { t.add("PATH", "MODE", "STATE", "WHO", "SINCE", "FENCE", "NOTE", "CLAIM") }

func (t *table) add(path, mode, state, who, since, fence, note, claim string) {
	row := []string{path, mode, state, who, since, fence}
	if t.long {
		row = append(row, claim)
	}
	t.cells = append(t.cells, append(row, note))
}

func (t *table) rows(status lockkeeper.Status) {
	state, fence := stateText(status), "-"
	if status.State == lockkeeper.Held {
		fence = fmt.Sprint(status.Fence)
	}
	note := strings.TrimSpace(status.Note + " " + status.Link)
	for _, g := range status.Grants {
		t.add(string(g.Path), modeText(g.Target), state, who(status.Label, status.Ref), duration.Elapsed(status.Age),
			fence, note, status.Ref.String())
	}
}

// The least columns of texts that may be shortened. A claim's reference never is: people copy it.
const (
	leastPath  = 14
	leastState = 15
	leastWho   = 8
	leastNote  = 10
)

// widths chooses the columns of the texts on the terminal.
func (t *table) widths() []int {
	widths := make([]int, len(t.cells[0]))
	for _, row := range t.cells {
		for i, text := range row {
			widths[i] = max(widths[i], cells.Width(cells.Clean(text)))
		}
	}
	least, note := slices.Clone(widths), len(widths)-1
	for i, columns := range map[int]int{0: leastPath, 2: leastState, 3: leastWho, note: leastNote} {
		least[i] = min(least[i], columns)
	}
	return cells.Share(t.width-2*note, widths, least)
}

// flush writes all rows.
func (t *table) flush() error {
	if t.width > 0 && len(t.cells) > 0 {
		return t.flushTo(t.widths())
	}
	out := tabwriter.NewWriter(t.to, 0, 8, 2, ' ', 0)
	for _, row := range t.cells {
		fmt.Fprintln(out, strings.Join(row, "\t"))
	}
	return out.Flush()
}

// flushTo writes all rows with columns of these widths: paths shortened in the middle, other texts at their end.
func (t *table) flushTo(widths []int) error {
	var b strings.Builder
	for _, row := range t.cells {
		line := cells.Fit(cells.Middle(cells.Clean(row[0]), widths[0]), widths[0])
		for i, text := range row[1:] {
			line += "  " + cells.Fit(cells.Clean(text), widths[i+1])
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(t.to, b.String())
	return err
}

// stateText: "held, asked to yield, 5m left", "2nd in line", "behind a freeze".
func stateText(status lockkeeper.Status) string {
	state := status.State.String()
	switch {
	case status.State == lockkeeper.Waiting && isFrozen(status):
		state = "behind a freeze"
	case status.State == lockkeeper.Waiting:
		state = cmp.Or(positionText(status), state)
	case status.Converting:
		state += ", upgrading"
	case status.Lapsed:
		state += ", given up"
	case status.Asked != nil:
		state += ", asked to yield"
	}
	if status.State != lockkeeper.Waiting && status.Left > 0 && status.Left != lockkeeper.Forever {
		state += ", " + duration.Remaining(status.Left) + " left"
	}
	return state
}

// writeJSON writes v as one line of JSON. Durations of claims are in seconds.
func writeJSON(to io.Writer, v any) error {
	return json.NewEncoder(to).Encode(v)
}

// printable makes text fit for a label: valid UTF-8 without control characters,
// of at most so many bytes.
func printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	for len(text) > most {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}
