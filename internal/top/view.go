package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/cells"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// Style is how a line looks.
type Style int

// The styles.
const (
	Plain Style = iota
	Strong
	Selected
	Warning
)

// Line is a line of the screen. It fits its width.
type Line struct {
	Text  string
	Style Style
}

// above and below are the lines around the list.
func (m *Model) above() int {
	n := 2 // the title, the heads of the columns
	if m.server != "" {
		n++
	}
	if m.cluster.Line != "" {
		n++
	}
	if len(m.cluster.Alarms) > 0 {
		n++
	}
	if m.reading.Err != nil {
		n++
	}
	return n
}

// listRows is how many rows of the list fit on the screen.
func (m *Model) listRows() int { return max(1, m.size.Rows-m.above()-1) }

// View returns the screen at now: at most Size.Rows lines, each of at most Size.Cols columns.
func (m Model) View(now time.Time) []Line {
	cols := m.size.Cols
	var lines []Line
	add := func(style Style, text string) { lines = append(lines, Line{cells.Cut(text, cols), style}) }
	held, waiting := 0, 0
	for i := range m.reading.All {
		switch m.reading.All[i].State {
		case lockkeeper.Held:
			held++
		case lockkeeper.Waiting:
			waiting++
		}
	}
	count := fmt.Sprintf("%s  %d held, %d waiting", now.Format(time.TimeOnly), held, waiting)
	title := cells.Clean(m.words.Title)
	if room := cols - cells.Width(count) - 2; room > 8 {
		count = cells.Fit("lk top "+title, room) + "  " + count
	}
	add(Strong, count)
	if m.server != "" {
		add(Plain, m.server)
	}
	if m.cluster.Line != "" {
		add(Plain, "cluster "+cells.Clean(m.cluster.Line))
	}
	if n := len(m.cluster.Alarms); n > 0 {
		more := ""
		if n > 1 {
			more = fmt.Sprintf("; %d more", n-1)
		}
		add(Warning, fmt.Sprintf("ALARM (n: nodes%s): %s", more, cells.Clean(m.cluster.Alarms[0].Text)))
	}
	if m.reading.Err != nil {
		add(Warning, fmt.Sprintf("OLD: as of %s, %s ago: %s", m.reading.At.Format(time.TimeOnly),
			duration.Elapsed(now.Sub(m.reading.At)), cells.Clean(m.words.Old(m.reading.Err))))
	}
	if m.mode == reading {
		add(Strong, "")
		text := m.wrapped()
		for i := m.line; i < len(text) && i < m.line+m.listRows(); i++ {
			add(Plain, text[i])
		}
	} else {
		lines = append(lines, m.list(now)...)
	}
	if most := m.size.Rows - 1; len(lines) > most {
		lines = lines[:max(0, most)]
	}
	for len(lines) < m.size.Rows-1 {
		add(Plain, "")
	}
	add(Strong, m.foot())
	return lines
}

// list returns the heads of the columns and the rows on the screen.
func (m *Model) list(now time.Time) []Line {
	all := m.present(now)
	var table [][]string
	for i := m.top; i < len(m.rows) && i < m.top+m.listRows(); i++ {
		table = append(table, m.columns(&m.rows[i], all))
	}
	heads := []string{"PATH", "STATE", "WHO", "SINCE", "MODE", "WHY"}
	widths := fitColumns(m.size.Cols-2, append([][]string{heads}, table...))
	lines := []Line{{cells.Cut("  "+join(heads, widths), m.size.Cols), Strong}}
	if len(m.rows) == 0 {
		text := "nothing is held, and nobody waits"
		if m.filter != "" || m.queue != "" {
			text += " here; Esc shows everything"
		}
		lines = append(lines, Line{cells.Cut("  "+text, m.size.Cols), Plain})
	}
	for i, columns := range table {
		line := Line{"  " + join(columns, widths), Plain}
		if m.top+i == m.at {
			line = Line{"> " + join(columns, widths), Selected}
		}
		line.Text = cells.Cut(line.Text, m.size.Cols)
		lines = append(lines, line)
	}
	return lines
}

func (m *Model) columns(r *row, all []lockkeeper.Status) []string {
	if r.status == nil {
		return []string{r.name(), "", "", "", "", ""}
	}
	s := all[r.index]
	state, mode, who, why := m.words.Claim(s, r.grant)
	return []string{r.name(), state, cells.Clean(who), duration.Elapsed(s.Age), mode, cells.Clean(why)}
}

// The least columns of texts that may be shortened. Each row keeps a part of its reason at 80 columns, however
// long the paths and the names are.
const (
	leastPath  = 12
	leastState = 16
	leastWho   = 9
	leastMode  = 6
	leastWhy   = 20
)

// fitColumns chooses the widths of the columns: what their texts need if all fit, and else the widest give way
// first. On a screen that is narrower than the least of all, the columns on the right are cut.
func fitColumns(room int, table [][]string) []int {
	widths := make([]int, len(table[0]))
	for _, columns := range table {
		for i, text := range columns {
			widths[i] = max(widths[i], cells.Width(text))
		}
	}
	least := []int{leastPath, leastState, leastWho, widths[3], leastMode, leastWhy}
	for i := range least {
		least[i] = min(least[i], widths[i])
	}
	return cells.Share(room-2*(len(widths)-1), widths, least)
}

func join(columns []string, widths []int) string {
	var b strings.Builder
	for i, text := range columns {
		if i == 0 {
			text = fitPath(text, widths[0])
		}
		b.WriteString(cells.Fit(text, widths[i]) + "  ")
	}
	return strings.TrimRight(b.String(), " ")
}

// fitPath shortens the name of a path in its middle; at most a third of the width goes to its indentation.
func fitPath(text string, width int) string {
	name := strings.TrimLeft(text, " ")
	indent := min(len(text)-len(name), width/3)
	if cells.Width(text) <= width {
		return text
	}
	return strings.Repeat(" ", indent) + cells.Middle(name, width-indent)
}

// foot is the last line: a question, an outcome, or the keys.
func (m *Model) foot() string {
	input := cells.Clean(m.input) + "_"
	note := ""
	if m.note != "" {
		note = "  (" + cells.Clean(m.note) + ")"
	}
	switch m.mode {
	case filtering:
		return m.question("/", "", "", input, "  Enter keeps it, Esc ends it")
	case asksPath:
		return m.question("freeze which path? ", "", "", input, note)
	case asksSpan:
		return m.question("freeze ", m.pending.text, " for: ", input, note)
	case asksReason:
		verb := map[Act]string{Revoke: "revoke ", Freeze: "freeze ", Thaw: "thaw "}[m.pending.Act]
		return m.question(verb, cells.Clean(m.pending.text), "; Esc: no; why? ", input, note)
	case reading:
		if len(m.wrapped()) > m.listRows() {
			return "up, down, PgUp, PgDn: move  any other key: back"
		}
		return "any key: back"
	}
	if m.note != "" {
		return cells.Clean(m.note)
	}
	return m.hints()
}

// The least columns of a question's object and of its answer.
const (
	leastObject = 16
	leastAnswer = 10
)

// question puts an object and what was typed between the fixed parts of a question. Where room is short, the note
// gives way first, and the object before the answer.
func (m *Model) question(before, object, after, input, note string) string {
	room := m.size.Cols - cells.Width(before+after+note)
	if need := min(leastObject, cells.Width(object)) + min(leastAnswer, cells.Width(input)); room < need {
		note = cells.Cut(note, room+cells.Width(note)-need)
		room = need
	}
	object = cells.Middle(object, max(leastObject, room-cells.Width(input)))
	if rest := room - cells.Width(object); cells.Width(input) > rest {
		input = cells.Middle(input, rest)
	}
	return before + object + after + input + note
}

// keyHints are the keys of the list in the order of the last line, with their importance: 0 is never left out.
var keyHints = []struct {
	text string
	drop int // the highest is left out first
}{
	{"? help", 0},
	{"/ filter", 4},
	{"Enter queue", 6},
	{"w why", 3},
	{"x revoke", 1},
	{"f freeze", 2},
	{"t thaw", 5},
	{"q quit", 0},
}

// hints says what is shown, and which keys there are: as many as fit. Help has all.
func (m *Model) hints() string {
	shown := ""
	if m.queue != "" {
		shown = "queue of " + cells.Middle(cells.Clean(string(m.queue)), m.size.Cols/3) + "; Esc: all  "
	}
	if m.filter != "" {
		shown = "filter " + cells.Middle(cells.Clean(m.filter), m.size.Cols/3) + "; Esc: all  " + shown
	}
	for most := len(keyHints); ; most-- {
		var hints []string
		for _, k := range keyHints {
			if k.drop <= most {
				hints = append(hints, k.text)
			}
		}
		if text := shown + strings.Join(hints, "  "); most == 0 || cells.Width(text) <= m.size.Cols {
			return text
		}
	}
}
