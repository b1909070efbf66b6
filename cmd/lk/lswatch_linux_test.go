package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/cells"
	"github.com/lockkeeper/lockkeeper/internal/listing"
)

// On a terminal lk ls --watch draws the list in place. It says since when the list is old while the
// server can't be reached, and shows nothing of it when the server is back without those locks.
func TestWatchedListAtTerminal(t *testing.T) {
	s := startScreen(t)
	server := startServer(t, t.TempDir(), "--engine", "mem:")
	t.Cleanup(func() { server.stop(t) })
	address := strings.TrimPrefix(server.url, "lk://")
	s.types("export LOCKKEEPER_URL="+server.url, "Enter")
	s.types("lk run -q --as ann desk -- sh -c 'touch held; await never' 2>ann.log &", "Enter")
	s.types("await held; lk run -q $(printf 'long-%.0s' {1..40})end -- sh -c 'clear; lk ls; lk ls | cat'", "Enter")
	s.shows(`^PATH +MODE.*\ndesk +exclusive +held +ann .*\nlong-\S+~\S+-end +exclusive +held .*\nPATH(.*\n)+long-\S{95}\n`)
	s.types("clear; lk ls --watch", "Enter")
	s.shows(`^\d\d:\d\d:\d\d  Ctrl-C ends\nPATH +MODE.*\ndesk +exclusive +held +ann +\S+ +1`)
	s.tmux("resize-window", "-x", "40", "-y", "5")
	s.shows(`^\d\d:\d\d:\d\d  Ctrl-C ends\nPATH .*~\ndesk .*~ `)
	s.tmux("resize-window", "-x", "100", "-y", "30")
	server.cmd.Process.Kill()
	<-server.ended
	s.shows(`^as of \d\d:\d\d:\d\d, \S+ ago: .*can't be reached.*\nPATH +MODE.*\ndesk +exclusive +held +ann`)
	server = startServer(t, t.TempDir(), "--engine", "mem:", "--listen", address)
	s.shows(`^\d\d:\d\d:\d\d  Ctrl-C ends\n(nothing is held|PATH)`)
	s.types("C-c")
	s.shows(`next: $`)
	s.types("echo code=$?", "Enter")
	s.shows(`code=130`)
}

// A list that lacks room says how many lines are missing. What others wrote can't move the cursor.
func TestFrameOfListFitsScreen(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	var all []lockkeeper.Status
	for i := range 200 {
		all = append(all, lockkeeper.Status{
			Ref:    lockkeeper.Ref{Session: "s", ID: uint64(i + 1)},
			State:  lockkeeper.Held,
			Grants: []lockkeeper.Grant{{Target: lockkeeper.Target{Path: "db", Mode: lockkeeper.ModeShared}}},
			Label:  lockkeeper.Label{As: "ann", Note: "\x1b[2J漢\u202e"},
		})
	}
	screen := &listScreen{lsOptions: &lsOptions{}}
	r := listing.Reading{All: all, At: now.Add(-3 * time.Second)}
	frame := screen.frame(r, now, 60, 10)
	lines := strings.Split(frame, "\r\n")
	if len(lines) != 10 || lines[0] != "\x1b[H\x1b[K03:04:05  Ctrl-C ends" || lines[8] != "\x1b[Kand 194 lines below" {
		t.Errorf("the frame is %q", lines)
	}
	if !strings.Contains(lines[2], "held   ann  3s ") || strings.Contains(lines[2], "\x1b[2J") {
		t.Errorf("a row is %q", lines[2])
	}
	r.Err = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "gone"}
	if frame = screen.frame(r, now, 60, 10); !strings.Contains(frame, "as of 03:04:02, 3s ago: gone") ||
		!strings.Contains(frame, "ann  <1s ") {
		t.Errorf("the frame of an old list is %q", frame)
	}
}

// One long path, note or name leaves the other columns of every row on the terminal. Elsewhere every text is whole.
func TestListFitsTerminal(t *testing.T) {
	long := "org/" + strings.Repeat("very/", 30) + "deep"
	claim := func(id uint64, state lockkeeper.State, path, as, note string) lockkeeper.Status {
		return lockkeeper.Status{
			Ref:      lockkeeper.Ref{Session: "s", ID: id},
			State:    state,
			Position: int(id),
			Grants:   []lockkeeper.Grant{{Target: lockkeeper.Target{Path: lockkeeper.Path(path), Mode: lockkeeper.ModeShared}}},
			Label:    lockkeeper.Label{As: as, Note: note},
		}
	}
	all := []lockkeeper.Status{
		claim(1, lockkeeper.Held, long, strings.Repeat("w", 90), strings.Repeat("n", 300)),
		claim(2, lockkeeper.Waiting, "db/漢字", "bob", "nightly load"),
	}
	for _, o := range []*lsOptions{{}, {long: true}} {
		var out strings.Builder
		if err := o.draw(&out, all, 80); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(out.String(), "\n")
		for _, line := range lines {
			if cells.Width(line) > 80 {
				t.Errorf("%d columns: %s", cells.Width(line), line)
			}
		}
		if !strings.HasPrefix(lines[1], "org/") || !strings.Contains(lines[1], "/deep  shared") ||
			!strings.Contains(lines[2], "2nd in line  bob") || !strings.Contains(lines[2], "nightly l") ||
			o.long != strings.Contains(lines[2], "  s.2  ") {
			t.Errorf("the list is\n%s", out.String())
		}
		out.Reset()
		if err := o.draw(&out, all, 0); err != nil || !strings.Contains(out.String(), long+"  shared") ||
			!strings.Contains(out.String(), strings.Repeat("n", 300)) {
			t.Errorf("without a terminal the list is\n%s", out.String())
		}
	}
}

// An old list is marked once: on stderr for people, as a document for programs.
func TestOldListIsMarkedOnce(t *testing.T) {
	good := listing.Reading{At: time.Now()}
	old := good
	old.Err = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "gone"}
	for _, asJSON := range []bool{false, true} {
		var out, errs bytes.Buffer
		p := &listPrinter{lsOptions: &lsOptions{json: asJSON}, to: &out, errs: &errs}
		for _, r := range []listing.Reading{good, good, old, old, good} {
			if err := p.show(r); err != nil {
				t.Fatal(err)
			}
		}
		if !asJSON {
			if n := strings.Count(out.String(), "nobody waits"); n != 1 {
				t.Errorf("an unchanged list was printed %d times", n)
			}
			if text := errs.String(); strings.Count(text, ": gone; lk ls goes on\n") != 1 ||
				strings.Count(text, "lk: it can be read again\n") != 1 {
				t.Errorf("stderr: %q", text)
			}
			continue
		}
		var errors []string
		for d := json.NewDecoder(&out); d.More(); {
			var doc listJSON
			if err := d.Decode(&doc); err != nil || doc.Claims == nil {
				t.Fatal(err, doc)
			}
			errors = append(errors, doc.Error)
		}
		if got := strings.Join(errors, ","); got != ",gone," {
			t.Errorf("the documents have the errors %q", got)
		}
	}
}
