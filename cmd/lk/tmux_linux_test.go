package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

// A full-screen program works under lk as without it: it gets input, stops by Ctrl-Z, continues,
// and is notified when the terminal changes its size.
func TestFullScreenProgram(t *testing.T) {
	s := startScreen(t)
	file := filepath.Join(s.folder, "letter")
	s.types("lk run desk -- vi -u NONE -n letter", "Enter")
	s.shows(`letter.*New`)
	s.types("i", "first line", "Escape")
	s.shows(`(?m)^first line`)

	s.types("C-z")
	s.shows(`Stopped +lk run desk`)
	s.types("lk ls", "Enter")
	s.shows(`desk +exclusive +held`)
	s.types("fg", "Enter")
	s.shows(`(?m)^first line\s+^~`)

	s.tmux("resize-window", "-x", "97", "-y", "31")
	s.shows(`first line\s+(~\s+){29}`) // the editor has drawn all 31 rows
	s.types("o", "second line", "Escape", ":wq", "Enter")
	s.shows(`next: $`)
	s.types("echo code=$?", "Enter")
	s.shows(`code=0`)
	if text, err := os.ReadFile(file); err != nil || string(text) != "first line\nsecond line\n" {
		t.Errorf("the letter reads %q, %v", text, err)
	}
}

// At a terminal lk run shows for how long it has waited. Ctrl-C ends the wait and leaves no claim
// in line.
func TestWaitAtTerminal(t *testing.T) {
	s := startScreen(t)
	const turning = `waiting for desk: held by ann .*\n[-|/\\] waiting for \d+(ms|s), Ctrl-C gives up`
	s.types("lk run --as ann desk -- sh -c 'touch held; await go' &", "Enter")
	s.types("await held && echo ann\\ has it", "Enter")
	s.shows(`ann has it`)
	s.types("clear; lk run desk -- touch ran", "Enter")
	s.shows(turning)
	s.types("C-c")
	s.shows(`waiting for desk: held by ann .*\n(\^C)?\n?next: $`)
	s.types("echo code=$?", "Enter")
	s.shows(`\ncode=130`)
	s.types("clear; lk run desk -- echo mine", "Enter")
	s.shows(turning)
	if err := os.WriteFile(filepath.Join(s.folder, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.shows(`waiting for desk: held by ann .*\nmine\n`)
	s.types("clear; lk ls; wait; echo all\\ done", "Enter")
	screen := s.shows(`all done`)
	if regexp.MustCompile(`in line`).MatchString(screen) {
		t.Errorf("somebody still waits:\n%s", screen)
	}
	if _, err := os.Stat(filepath.Join(s.folder, "ran")); err == nil {
		t.Error("the command was run")
	}
}

// screen is a shell at a terminal that is drawn by tmux, as a person sees it.
type screen struct {
	t      *testing.T
	folder string
	socket string
}

func startScreen(t *testing.T) *screen {
	t.Helper()
	for _, tool := range []string{"tmux", "vi"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("this test needs tmux and vi: run \"make tools\", or install them: %v", err)
		}
	}
	s := &screen{t: t, folder: t.TempDir()}
	s.socket = filepath.Join(s.folder, "tmux")
	for name, value := range map[string]string{
		"HOME": s.folder, "XDG_STATE_HOME": s.folder, "LOCKKEEPER_URL": "", "CI": "", "HISTFILE": "", "LC_ALL": "C.UTF-8",
		"TERM": "screen", "TMUX": "", "GORACE": "atexit_sleep_ms=0",
	} {
		t.Setenv(name, value) // the terminal inherits them
	}
	s.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "-c", s.folder,
		"env 'PS1=next: ' bash --norc --noprofile")
	shell, err := strconv.Atoi(strings.TrimSpace(s.tmux("display-message", "-p", "#{pane_pid}")))
	if err != nil {
		t.Fatal(err)
	}
	ended, err := supervise.WatchProcess(shell)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.tmux("kill-server")
		select {
		case <-ended:
		case <-time.After(patience):
			t.Errorf("the shell has not ended in %s", patience)
		}
	})
	s.shows(`next: `)
	return s
}

func (s *screen) tmux(args ...string) string {
	s.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", s.socket}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// types presses keys, each named as tmux has it or a text.
func (s *screen) types(keys ...string) {
	s.t.Helper()
	s.tmux(append([]string{"send-keys"}, keys...)...)
}

// shows waits until the screen matches.
func (s *screen) shows(pattern string) string {
	s.t.Helper()
	want := regexp.MustCompile(pattern)
	tick, late := time.NewTicker(10*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for {
		text := s.tmux("capture-pane", "-p")
		if want.MatchString(regexp.MustCompile(`\s+$`).ReplaceAllString(text, " ")) {
			return text
		}
		select {
		case <-tick.C:
		case <-late:
			s.t.Fatalf("the screen does not show %s but\n%s", strconv.Quote(pattern), text)
		}
	}
}

// Without a terminal that can erase a line there is no animation.
func TestSpinnerNeedsTerminal(t *testing.T) {
	_, tty := openTerminal(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	defer func(stderr *os.File) { os.Stderr = stderr }(os.Stderr)
	for _, c := range []struct {
		stderr *os.File
		term   string
		want   bool
	}{{tty, "xterm", true}, {tty, "dumb", false}, {tty, "", false}, {w, "xterm", false}} {
		os.Stderr = c.stderr
		t.Setenv("TERM", c.term)
		if got := canErase(stderr); got != c.want {
			t.Errorf("TERM=%s, terminal %v: %v", c.term, c.stderr == tty, got)
		}
	}
}
