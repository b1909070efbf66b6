package top

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/cells"
	"github.com/lockkeeper/lockkeeper/internal/listing"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.Local)

func claim(id uint64, state lockkeeper.State, as, note string, paths ...lockkeeper.Path) lockkeeper.Status {
	s := lockkeeper.Status{
		Ref:   lockkeeper.Ref{Session: "s", ID: id},
		State: state,
		Label: lockkeeper.Label{As: as, Note: note},
		Left:  lockkeeper.Forever,
	}
	for _, path := range paths {
		s.Grants = append(s.Grants, lockkeeper.Grant{Target: lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive}})
	}
	return s
}

func words() Words {
	return Words{
		Title: "lk://host",
		Claim: func(s lockkeeper.Status, g lockkeeper.Grant) (state, mode, who, why string) {
			return s.State.String(), g.Mode.String(), s.As, s.Note
		},
		Why: func(path lockkeeper.Path, all []lockkeeper.Status) string {
			return fmt.Sprintf("why %s of %d\n", path, len(all))
		},
		Old: func(err error) string { return err.Error() },
		May: func(Act) error { return nil },
	}
}

func reads(all ...lockkeeper.Status) listing.Reading { return listing.Reading{All: all, At: noon} }

// after returns the model after these messages, and the last action that is not None.
func after(m Model, messages ...any) (Model, Action) {
	var last Action
	for _, message := range messages {
		var act Action
		if text, ok := message.(string); ok {
			for _, r := range text {
				if m, act = m.Update(Key(string(r))); act.Act != None {
					last = act
				}
			}
			continue
		}
		if m, act = m.Update(message); act.Act != None {
			last = act
		}
	}
	return m, last
}

func screen(m Model) string {
	var texts []string
	for _, line := range m.View(noon.Add(2 * time.Second)) {
		texts = append(texts, line.Text)
	}
	return strings.Join(texts, "\n")
}

func wants(t *testing.T, m Model, pieces ...string) {
	t.Helper()
	text := screen(m)
	for _, piece := range pieces {
		if absent, not := strings.CutPrefix(piece, "!"); not == strings.Contains(text, absent) {
			t.Errorf("%q on the screen:\n%s", piece, text)
		}
	}
}

var some = reads(claim(1, lockkeeper.Held, "ann", "nightly", "db/a"), claim(2, lockkeeper.Held, "bob", "", "site"),
	claim(3, lockkeeper.Waiting, "cid", "deploy", "db/a"), claim(4, lockkeeper.Freezing, "ops", "disks", "files"))

// The tree has every path with those above it, in their order, with ages that go on.
func TestTreeShowsClaims(t *testing.T) {
	m, _ := after(New(words()), some)
	wants(t, m, "lk top lk://host", "12:00:02  2 held, 1 waiting", "  site   held     bob",
		"  db\n>   a    held     ann  2s     exclusive  nightly\n"+
			"         waiting  cid  2s     exclusive  deploy\n  files  frozen   ops")
	m, _ = after(New(words()), reads())
	wants(t, m, "nothing is held, and nobody waits", "? help")
}

// The selected claim stays selected when others come and go before it.
func TestSelectionFollowsClaim(t *testing.T) {
	m, _ := after(New(words()), some, Key("end"))
	wants(t, m, "> site   held     bob")
	m, _ = after(m, reads(claim(9, lockkeeper.Held, "new", "", "alpha/beta"),
		claim(2, lockkeeper.Held, "bob", "", "site"), claim(5, lockkeeper.Held, "eve", "", "zoo")))
	wants(t, m, "> site    held   bob")
	m, _ = after(m, reads())
	if _, ok := m.selected(); ok {
		t.Error("a row of an empty list is selected")
	}
	after(m, "xftw", Key("enter"), Key("up"), Key("pgdn")) // must not panic
}

func TestFilterAndQueue(t *testing.T) {
	m, _ := after(New(words()), some, "/DEPL")
	wants(t, m, "/DEPL_", "> ", "cid", "!ann", "!bob", "!ops")
	m, _ = after(m, Key("backspace"), Key("ctrl+u"), "bob", Key("enter"))
	wants(t, m, "> site  held   bob", "!cid", "filter bob")
	m, _ = after(m, Key("esc"))
	wants(t, m, "ann", "ops")
	m, _ = after(m, Key("home"), Key("enter"))
	wants(t, m, "queue of db", "ann", "cid", "!bob", "!ops")
	m, _ = after(m, Key("esc"), "w")
	wants(t, m, "why db of 4", "any key")
	m, _ = after(m, Size{80, 5})
	wants(t, m, "why db of 4", "!PgDn")
	m, _ = after(m, Key("esc"), "?")
	wants(t, m, "PgDn: move  any other key: back") // the text goes on below
	m, _ = after(m, Size{80, 24})
	m, _ = after(m, "q")
	wants(t, m, "bob", "!why db") // a key leaves the text, and does nothing else
}

// An act needs its key, a reason, and Enter; it is about what was selected at the key, whatever the
// list shows later.
func TestActsAreConfirmed(t *testing.T) {
	m, act := after(New(words()), some, "x", Key("enter"))
	if wants(t, m, "revoke ann at db/a", "say why"); act.Act != None {
		t.Errorf("without a reason: %+v", act)
	}
	m, act = after(m, reads(claim(2, lockkeeper.Held, "bob", "", "site")), "hangs", Key("enter"))
	if act.Act != Revoke || act.Ref.ID != 1 || act.Note != "hangs" {
		t.Errorf("revoke: %+v", act)
	}
	if m, _ = after(m, Done{"revoked"}); m.mode != browsing {
		t.Error("the question is still there")
	}
	wants(t, m, "revoked")

	if _, act = after(New(words()), some, Key("down"), "xwrong", Key("enter")); act.Ref.ID != 3 {
		t.Errorf("revoke of the second claim: %+v", act)
	}
	if _, act = after(m, some, "xyes", Key("esc"), Key("enter")); act.Act != None {
		t.Errorf("after Esc: %+v", act)
	}
	m, act = after(New(words()), some, "fsoon", Key("enter"))
	if wants(t, m, "freeze db/a for: soon_", "such as 30m"); act.Act != None {
		t.Errorf("without a time: %+v", act)
	}
	_, act = after(m, Key("ctrl+u"), "30m", Key("enter"), "disks", Key("enter"))
	if act.Act != Freeze || act.Path != "db/a" || act.For != 30*time.Minute || act.Note != "disks" {
		t.Errorf("freeze: %+v", act)
	}
	m, act = after(New(words()), reads(), "f..", Key("enter"))
	if wants(t, m, "freeze which path? .._", "such as db/a"); act.Act != None {
		t.Errorf("without a path: %+v", act)
	}
	m, _ = after(New(words()), some, "p")
	_, act = after(m, "new/place", Key("enter"), "1h", Key("enter"), "move", Key("enter"))
	if act.Act != Freeze || act.Path != "new/place" || act.For != time.Hour || act.Note != "move" {
		t.Errorf("freeze of a path that nobody uses: %+v", act)
	}
	m, act = after(New(words()), some, "t")
	if wants(t, m, "no freeze is selected"); act.Act != None {
		t.Errorf("thaw of a hold: %+v", act)
	}
	m, act = after(m, "/ops", Key("enter"), "t")
	if wants(t, m, "thaw files; Esc: no; why? "); act.Act != None {
		t.Errorf("thaw without Enter: %+v", act)
	}
	m, act = after(m, "done")
	if act.Act != None {
		t.Errorf("thaw by another key: %+v", act)
	}
	if _, act = after(m, Key("enter")); act.Act != Thaw || act.Path != "files" || act.Note != "done" {
		t.Errorf("thaw: %+v", act)
	}
	if _, act = after(m, Key("ctrl+u"), Key("enter")); act.Act != Thaw || act.Note != "" {
		t.Errorf("thaw without a reason: %+v", act)
	}
}

// What the engine can't do is refused before anything is asked; so is everything while the state is old.
func TestActsAreRefused(t *testing.T) {
	w := words()
	w.May = func(Act) error { return errors.New("this engine can't") }
	m, _ := after(New(w), some, "x")
	wants(t, m, "this engine can't", "!why?")

	old := some
	old.Err = errors.New("connection refused")
	m, _ = after(New(words()), some, old)
	wants(t, m, "OLD: as of 12:00:00, 2s ago: connection refused", "ann  <1s", "!ann  2s")
	m, act := after(m, "xpwhy", Key("enter"))
	if wants(t, m, "!revoke ann"); act.Act != None {
		t.Errorf("on an old state: %+v", act)
	}
	m, _ = after(m, Key("esc"), reads(claim(7, lockkeeper.Held, "new", "", "other")))
	wants(t, m, "other", "!OLD", "!ann")
}

// The state of the cluster and its worst alarm are on every screen; n shows the nodes as they change.
func TestClusterIsShown(t *testing.T) {
	m, _ := after(New(words()), some, Server("engine cluster"), "n")
	wants(t, m, "no cluster is known")
	m, _ = after(m, Key("esc"))
	wants(t, m, "!ALARM", "!cluster ready")
	sound := Cluster{Line: "ready: 2 voters", Nodes: "one  leader\ntwo  voter\n"}
	m, _ = after(m, sound, "n")
	wants(t, m, "cluster ready: 2 voters", "one  leader\ntwo  voter", "any key", "!alarm")
	m, _ = after(m, Cluster{
		Line:   "no quorum",
		Alarms: []lockkeeper.Alarm{{Text: "two is lost", Remedy: "start two"}, {Text: "no majority"}},
		Nodes:  "one  voter\n",
	})
	wants(t, m, "cluster no quorum", "ALARM (n: nodes; 1 more): two is lost", "one  voter\n", "start two",
		"alarm: no majority", "!two  voter")
	m, _ = after(m, Key("esc"), "?", sound)
	wants(t, m, "revoke a claim", "!one  leader")
	m, _ = after(m, Key("esc"), Cluster{})
	wants(t, m, "ann", "!cluster ready")
}

// Every screen fits, whatever the names are, and the selected row is on it.
func TestScreenFits(t *testing.T) {
	var all []lockkeeper.Status
	for i := range 200 {
		all = append(all, claim(uint64(i+1), lockkeeper.Waiting, fmt.Sprintf("w%03d漢字", i), "\x1b[2J\u202e\n漢字漢字漢字",
			lockkeeper.Path("db/"+strings.Repeat("very-long-", i%20)+"x/漢字")))
	}
	old := reads(all...)
	old.Err = errors.New("gone\x1b[2J")
	for _, size := range []Size{{40, 10}, {80, 24}, {20, 5}, {200, 60}, {3, 2}, {1, 1}} {
		m, _ := after(New(words()), reads(all...), Server("a server"), size,
			Cluster{
				Line:   "ready\u202e",
				Alarms: []lockkeeper.Alarm{{Text: "lost\x1b[2J", Remedy: "\u202e"}},
				Nodes:  "one\u202e",
			})
		for _, message := range []any{
			Key("end"), Key("pgup"), Key("home"), Key("pgdn"), "?", "j", "q", "n", "j", "q", "/w", Key("enter"), "x",
			"because\u202e", old, Key("esc"),
		} {
			m, _ = after(m, message)
			lines := m.View(noon)
			selected := 0
			for _, line := range lines {
				if cells.Width(line.Text) > size.Cols || strings.ContainsAny(line.Text, "\x1b\u202e\n") {
					t.Fatalf("%v after %v: a line is %q", size, message, line.Text)
				}
				if line.Style == Selected {
					selected++
				}
			}
			if len(lines) > max(size.Rows, 1) {
				t.Fatalf("%v after %v: %d lines", size, message, len(lines))
			}
			if size.Rows >= 10 && m.mode != reading && selected != 1 {
				t.Fatalf("%v after %v: %d lines are selected\n%s", size, message, selected, screen(m))
			}
		}
	}
	m, _ := after(New(words()), reads(all...), Size{40, 10}, Key("end"))
	for range len(m.rows) {
		m, _ = after(m, Key("up"))
		wants(t, m, "\n> ")
	}
	if m.at != 0 {
		t.Errorf("the first row is not reached: %d", m.at)
	}
}

// A long name or path leaves room for the reasons of all claims, and the text about a path is shown whole.
func TestLongNamesLeaveReasons(t *testing.T) {
	long := claim(1, lockkeeper.Held, strings.Repeat("W", 120), "long", lockkeeper.Path(strings.Repeat("p", 200)))
	m, _ := after(New(words()), reads(long, claim(2, lockkeeper.Waiting, "cid", "held by ann", "db")), Size{120, 24})
	wants(t, m, "WHY", "held by ann")
	deep := claim(1, lockkeeper.Held, strings.Repeat("W", 120), "nightly load test of all", lockkeeper.Path(
		"a/b/c/d/e/f/g/h/first-"+strings.Repeat("p", 100)+"-last"))
	m, _ = after(New(words()), reads(deep, claim(2, lockkeeper.Waiting, "cid", "held by ann for 2 minutes", "db")))
	wants(t, m, "~last", "held by ann for ", "nightly load test", "q quit")
	m, _ = after(New(words()), reads(deep), "x", strings.Repeat("because it hangs, ", 9))
	wants(t, m, "revoke WWW", "-last; Esc: no; why? ", "it hangs, _")

	w := words()
	w.Why = func(lockkeeper.Path, []lockkeeper.Status) string {
		return strings.Repeat("word ", 30) + "END\n"
	}
	m, _ = after(New(w), reads(long), Size{80, 24}, "w")
	wants(t, m, "END")
}

// The last line says how to get help and how to quit, and leaves out other keys where room is short.
func TestKeysFitLastLine(t *testing.T) {
	for cols, want := range map[int]string{
		80: "\nqueue of db/a; Esc: all  ? help  / filter  w why  x revoke  f freeze  q quit",
		50: "\nqueue of db/a; Esc: all  ? help  x revoke  q quit",
	} {
		m, _ := after(New(words()), some, Size{cols, 24}, Key("enter"))
		if text := screen(m); !strings.HasSuffix(text, want) {
			t.Errorf("%d columns: want %q at the end of\n%s", cols, want, text)
		}
	}
	path := lockkeeper.Path(strings.Repeat("long/", 15) + "end")
	m, _ := after(New(words()), reads(claim(1, lockkeeper.Held, "ann", "", path)), Key("enter"))
	wants(t, m, "queue of long/", "/end; Esc: all  ? help", "q quit")
}

// Keys come whole however the terminal splits them; what is no key is dropped.
func TestKeys(t *testing.T) {
	for text, want := range map[string][]Key{
		"ab":              {"a", "b"},
		"\x1b":            {"esc"},
		"\x1b[A\x1bOB":    {"up", "down"},
		"\x1b[5~\x1b[6~x": {"pgup", "pgdn", "x"},
		"\x1b[1;5Cx":      {"x"},
		"\x1b[200~\r\x7f": {"enter", "backspace"},
		"\x1b\x1b[A":      {"esc", "up"},
		"漢\x03\x00\xff":   {"漢", "ctrl+c"},
	} {
		got, rest := keys(text)
		if !reflect.DeepEqual(got, want) || rest != "" {
			t.Errorf("%q: %q, rest %q, want %q", text, got, rest, want)
		}
		if text[0] == '\x1b' && len(text) > 1 && text[1] == '\x1b' {
			continue // an ESC at the end of the input is a key
		}
		var split []Key
		var buffer string
		for i := range len(text) {
			buffer += text[i : i+1]
			if buffer == "\x1b" && len(text) > 1 {
				continue
			}
			var some []Key
			some, buffer = keys(buffer)
			split = append(split, some...)
		}
		if !reflect.DeepEqual(split, want) && text != "\x1b" {
			t.Errorf("%q byte by byte: %q, want %q", text, split, want)
		}
	}
}
