// Package top is the program of lk top: the tree of claims on a terminal, with the acts of an
// operator. Model is pure: keys, readings and results come in by Update, actions come out, and View
// makes the lines of the screen. Run connects it with a terminal.
//
//	browsing ──/──> filter      browsing ──w──> text     browsing ──?──> text
//	browsing ──x──> reason ──Enter──> Revoke
//	browsing ──p──> path ──Enter──> span
//	browsing ──f──> span ──Enter──> reason ──Enter──> Freeze
//	browsing ──t──> reason ──Enter──> Thaw
//
// Esc leads back to browsing from everywhere. What an act is about is fixed when its key is pressed,
// so a list that changes meanwhile can't give it another object.
package top

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/cells"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/listing"
)

// Words are what the model has others say, as the rest of lk says it.
type Words struct {
	Title string // names the engine
	// Claim describes a claim at one of its targets: its state, its mode, its owner, and why it
	// waits or what it is for.
	Claim func(s lockkeeper.Status, g lockkeeper.Grant) (state, mode, who, why string)
	// Why explains why a path is not free, in lines.
	Why func(path lockkeeper.Path, all []lockkeeper.Status) string
	// Old says why a reading is old.
	Old func(error) string
	// May returns why the engine can't do an action at all; nil if it can.
	May func(Act) error
}

// Act is what an operator does.
type Act int

// The acts.
const (
	None Act = iota
	Revoke
	Freeze
	Thaw
	Quit
)

// Action is an act with its object. Update returns it to be done.
type Action struct {
	Act  Act
	Ref  lockkeeper.Ref  // of Revoke
	Path lockkeeper.Path // of Freeze and Thaw
	For  time.Duration   // of Freeze
	Note string          // why
	text string          // names the object in questions
}

// Messages for Update, beside listing.Reading.
type (
	// Key is a key: a character, or a name such as "enter" (see keys).
	Key string
	// Size is that of the terminal, in columns and rows.
	Size struct{ Cols, Rows int }
	// Done is the outcome of the latest action, for people.
	Done struct{ Text string }
	// Server is a line about the server; empty: there is none.
	Server string
	// Cluster is the cluster that the server belongs to. The zero value: none is known.
	Cluster struct {
		Line   string // its state
		Alarms []lockkeeper.Alarm
		Nodes  string // in lines
	}
)

// mode is what keys do.
type mode int

const (
	browsing mode = iota
	filtering
	asksPath
	asksSpan
	asksReason
	reading // a text
)

// Model is the state of the program. The zero Model is not ready: use New.
type Model struct {
	words   Words
	size    Size
	server  string
	cluster Cluster
	reading listing.Reading
	rows    []row
	at      int             // the selected row
	top     int             // the first row on the screen
	filter  string          // claims without it are hidden
	queue   lockkeeper.Path // only claims that meet it are shown; empty: all
	mode    mode
	input   string
	pending Action // is asked about
	text    []string
	line    int  // the first line of text on the screen
	nodes   bool // text is about the nodes of the cluster, and follows them
	note    string
}

// New returns a model without claims.
func New(words Words) Model { return Model{words: words, size: Size{80, 24}} }

// Update changes the model by a message, and returns what is to be done.
func (m Model) Update(message any) (Model, Action) {
	var act Action
	switch message := message.(type) {
	case listing.Reading:
		m.reading = message
		m.rebuild()
	case Size:
		m.size = message
	case Server:
		m.server = cells.Clean(string(message))
	case Cluster:
		m.cluster = message
		if m.mode == reading && m.nodes {
			m.text = linesOf(m.nodesText())
		}
	case Done:
		m.note = message.Text
	case Key:
		act = m.press(string(message))
	}
	m.scroll()
	return m, act
}

func (m *Model) press(key string) Action {
	if key == "ctrl+c" {
		return Action{Act: Quit}
	}
	switch m.mode {
	case browsing:
		return m.browse(key)
	case reading:
		m.read(key)
	case filtering:
		if m.edit(key) == "enter" || key == "esc" {
			m.mode = browsing
		}
		if key == "esc" {
			m.input = ""
		}
		if filter := strings.ToLower(m.input); filter != m.filter {
			m.filter, m.rows = filter, nil
			m.rebuild()
		}
	case asksPath, asksSpan, asksReason:
		return m.answer(key)
	}
	return Action{}
}

// browse handles a key of the list.
func (m *Model) browse(key string) Action {
	m.note = ""
	page := max(1, m.listRows()-1)
	switch key {
	case "q":
		return Action{Act: Quit}
	case "up", "k":
		m.at--
	case "down", "j":
		m.at++
	case "pgup":
		m.at -= page
	case "pgdn", " ":
		m.at += page
	case "home", "g":
		m.at = 0
	case "end", "G":
		m.at = len(m.rows) - 1
	case "/":
		m.mode, m.input = filtering, m.filter
	case "esc":
		m.filter, m.queue = "", ""
		m.rebuild()
	case "enter":
		if r, ok := m.selected(); ok {
			m.queue = r.path
			m.rebuild()
		}
	case "?":
		m.show(help)
	case "w":
		if r, ok := m.selected(); ok {
			m.show(m.words.Why(r.path, m.present(time.Now())))
		}
	case "n":
		m.show(m.nodesText())
		m.nodes = true
	case "x", "f", "t":
		m.ask(key)
	case "p":
		m.askPath()
	}
	m.at = max(0, min(m.at, len(m.rows)-1))
	return Action{}
}

const oldState = "this state is old: nothing can be done now"

// ask begins an act on the selected row.
func (m *Model) ask(key string) {
	r, ok := m.selected()
	if !ok {
		if key == "f" {
			m.askPath()
		}
		return
	}
	a := Action{Act: map[string]Act{"x": Revoke, "f": Freeze, "t": Thaw}[key], Path: r.path, text: r.place()}
	next := map[Act]mode{Revoke: asksReason, Freeze: asksSpan, Thaw: asksReason}[a.Act]
	switch {
	case m.reading.Err != nil:
		m.note = oldState
		return
	case a.Act == Revoke && (r.status == nil || r.status.State == lockkeeper.Freezing):
		m.note = "no claim is selected: x revokes a claim, t ends a freeze"
		return
	case a.Act == Thaw && (r.status == nil || r.status.State != lockkeeper.Freezing):
		m.note = "no freeze is selected"
		return
	}
	if err := m.words.May(a.Act); err != nil {
		m.note = err.Error()
		return
	}
	if a.Act == Revoke {
		_, _, who, _ := m.words.Claim(*r.status, r.grant)
		a.Ref, a.text = r.status.Ref, who+" at "+r.place()
	}
	m.pending, m.mode, m.input = a, next, ""
}

// askPath begins the freeze of a path that is typed, which nobody has to use.
func (m *Model) askPath() {
	if m.reading.Err != nil {
		m.note = oldState
		return
	}
	if err := m.words.May(Freeze); err != nil {
		m.note = err.Error()
		return
	}
	m.pending, m.mode, m.input = Action{Act: Freeze}, asksPath, ""
}

// answer handles a key of a question.
func (m *Model) answer(key string) Action {
	if key == "esc" {
		m.mode, m.note = browsing, "nothing was done"
		return Action{}
	}
	if m.edit(key) != "enter" {
		return Action{}
	}
	switch text := strings.TrimSpace(m.input); m.mode {
	case asksPath:
		path, err := lockkeeper.ParsePath(text)
		if err != nil {
			m.note = "which path? such as db/a; " + reasonOf(err)
			return Action{}
		}
		m.pending.Path, m.pending.text = path, cells.Clean(string(path))
		m.mode, m.input, m.note = asksSpan, "", ""
		return Action{}
	case asksSpan:
		d, err := duration.Parse(text)
		if err != nil || d <= 0 {
			m.note = "for how long? such as 30m or 2h"
			return Action{}
		}
		m.pending.For, m.mode, m.input, m.note = d, asksReason, "", ""
		return Action{}
	case asksReason:
		if text == "" && m.pending.Act != Thaw {
			m.note = "say why: holders and waiters see it"
			return Action{}
		}
		m.pending.Note = text
	}
	m.mode, m.note = browsing, "asking the engine ..."
	return m.pending
}

// reasonOf says what is wrong with what was typed.
func reasonOf(err error) string {
	var e *lockkeeper.Error
	if errors.As(err, &e) {
		return e.Detail
	}
	return err.Error()
}

// edit changes the input by a key, and returns the key.
func (m *Model) edit(key string) string {
	switch {
	case key == "backspace" && m.input != "":
		_, size := utf8.DecodeLastRuneInString(m.input)
		m.input = m.input[:len(m.input)-size]
	case key == "ctrl+u":
		m.input = ""
	case utf8.RuneCountInString(key) == 1 && len(m.input)+len(key) <= lockkeeper.MaxNoteBytes:
		m.input += key
	}
	return key
}

// show shows a text over the list.
func (m *Model) show(text string) {
	m.mode, m.text, m.line, m.nodes = reading, linesOf(text), 0, false
}

func linesOf(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, cells.Clean(strings.TrimRight(line, "\n")))
	}
	return lines
}

// wrapped returns the lines of the text as they fit on the screen.
func (m *Model) wrapped() (lines []string) {
	for _, line := range m.text {
		lines = append(lines, cells.Wrap(line, m.size.Cols)...)
	}
	return lines
}

// nodesText shows the nodes of the cluster and its alarms.
func (m *Model) nodesText() string {
	if m.cluster.Line == "" {
		return "no cluster is known: the engine is no server of one, or its rules do not let you look at everything\n"
	}
	text := m.cluster.Line + "\n\n" + m.cluster.Nodes
	for _, a := range m.cluster.Alarms {
		text += "alarm: " + a.Text + "\n       " + a.Remedy + "\n"
	}
	return text
}

// read handles a key of a text.
func (m *Model) read(key string) {
	switch key {
	case "up", "k":
		m.line--
	case "down", "j":
		m.line++
	case "pgup":
		m.line -= m.listRows()
	case "pgdn", " ":
		m.line += m.listRows()
	default:
		m.mode = browsing
	}
}

// present returns the claims as they are at now; those of an old reading as they were.
func (m *Model) present(now time.Time) []lockkeeper.Status {
	if m.reading.Err != nil {
		return m.reading.All
	}
	return listing.Aged(m.reading.All, now.Sub(m.reading.At))
}

const help = `up, down, PgUp, PgDn, Home, End   move
/       filter by path, owner or note; Esc ends it
Enter   the queue of a path: claims there, above and below
w       why is the path not free?
n       the nodes of the cluster, if the server belongs to one
x       revoke a claim: its holder is asked to release,
        and loses it after its TTL (lk revoke --force: at once)
f       freeze a path: nothing is granted there
p       freeze another path: type it; nobody has to use it
t       end the freeze of a path
Esc     back to the whole tree
q       quit
`
