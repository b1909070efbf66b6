package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Ctrl-Z and Ctrl-C work with lk as with any command of a shell. A command that was stopped for
// longer than its lock lived does not continue.
func TestJobControl(t *testing.T) {
	s := startInteractiveShell(t)
	const ctrlC, ctrlZ = "\x03", "\x1a"

	s.types("lk run db -- sh -c 'echo run\"\"ning; read word; echo read \"$word\"; exec sleep 600'\n")
	s.shows(t, `running`)
	s.types(ctrlZ)
	s.shows(t, `Stopped +lk run db`)
	s.types("fg\n")
	s.shows(t, `lk run db`)
	s.types("hello\n")
	s.shows(t, `read hello`) // now it is the foreground for sure
	s.types(ctrlC)
	s.shows(t, `next: `)
	s.types("echo code=$?\n")
	s.shows(t, `code=130`)

	// A script stops where Ctrl-C stops its command, as it would without lk.
	s.types("sh -c 'lk run db -- sh -c \"echo go\"\"ing; exec sleep 600\"; echo script went\"\" on'; echo script=$?\n")
	s.shows(t, `going`)
	s.types(ctrlC)
	s.shows(t, `\^C[^o]*next: `)

	// In a pipeline the command gets the terminal when it wants to read from it.
	s.types("lk run db -- sh -c 'read word; echo read \"$word\"' | cat\nsesame\n")
	s.shows(t, `read sesame`)

	s.types("lk run --ttl 1s db -- sh -c 'echo hold\"\"ing; exec sleep 600'\n")
	s.shows(t, `holding`)
	s.types(ctrlZ)
	s.shows(t, `Stopped +lk run --ttl`)
	s.types("lk run --wait 20s db -- echo my t\"\"urn\n")
	s.shows(t, `my turn`)
	s.types("fg\n")
	s.shows(t, `lk: .*lost`)
	s.shows(t, `next: `)
	s.types("echo code=$?\n")
	s.shows(t, `code=76`)
}

// interactiveShell is a shell at a terminal of its own.
type interactiveShell struct {
	terminal *os.File

	mu      sync.Mutex
	unread  []byte // what it has shown since the last match
	changed chan struct{}
}

func startInteractiveShell(t *testing.T) *interactiveShell {
	t.Helper()
	terminal, tty := openTerminal(t)
	cmd := exec.Command("bash", "--norc", "--noprofile", "-i")
	cmd.Env = append(os.Environ(), "TERM=dumb", "PS1=next: ", "XDG_STATE_HOME="+t.TempDir(), "LOCKKEEPER_URL=", "CI=",
		"GORACE=atexit_sleep_ms=0")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	s := &interactiveShell{terminal: terminal, changed: make(chan struct{}, 1)}
	go s.read()
	t.Cleanup(func() {
		cmd.Process.Kill() // the kernel hangs up on its jobs
		cmd.Wait()
		terminal.Close()
	})
	return s
}

func openTerminal(t *testing.T) (terminal, tty *os.File) {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("this machine has no pseudo-terminals: %v", err)
	}
	number, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return terminal, tty
}

func (s *interactiveShell) read() {
	buffer := make([]byte, 4096)
	for {
		n, err := s.terminal.Read(buffer)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.unread = append(s.unread, buffer[:n]...)
		s.mu.Unlock()
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

func (s *interactiveShell) types(text string) { s.terminal.WriteString(text) }

// shows waits until the terminal shows a match.
func (s *interactiveShell) shows(t *testing.T, pattern string) {
	t.Helper()
	late := time.After(patience)
	for {
		s.mu.Lock()
		match := regexp.MustCompile(pattern).FindIndex(s.unread)
		if match != nil {
			s.unread = s.unread[match[1]:]
		}
		text := string(s.unread)
		s.mu.Unlock()
		if match != nil {
			return
		}
		select {
		case <-s.changed:
		case <-late:
			t.Fatalf("the terminal does not show %q but %q", pattern, text)
		}
	}
}

// The look follows the abilities of the terminal and the wishes of its user.
func TestLookOfTerminal(t *testing.T) {
	_, tty := openTerminal(t)
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 61, Row: 20}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		kind, locale, noColor string
		want                  look
	}{
		"all":      {"xterm", "C.UTF-8", "", look{61, true, true}},
		"no color": {"xterm", "en_US.utf8", "1", look{61, true, false}},
		"ASCII":    {"xterm", "C", "", look{61, false, true}},
		"dumb":     {"dumb", "C.UTF-8", "", look{width: plainWidth}},
	} {
		t.Setenv("TERM", c.kind)
		t.Setenv("LC_ALL", c.locale)
		t.Setenv("NO_COLOR", c.noColor)
		if got := lookOf(tty); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
