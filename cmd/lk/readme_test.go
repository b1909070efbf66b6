package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The sessions in README.md run as they stand there: each line behind a prompt
// ("$ ", "one$ ", "two$ ") is given to the shell of that name, and the lines
// below must be what comes out of it. Durations may differ, and "..." is anything.
func TestReadmeSessions(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Fatal("README.md has no session: a block that begins with ```console")
	}
	state := t.TempDir() // of one reader, from top to bottom
	for _, block := range blocks {
		runSession(t, block[1], state)
	}
}

var prompt = regexp.MustCompile(`^(\w*)\$ (.*)$`)

func runSession(t *testing.T, session, state string) {
	t.Helper()
	shells := map[string]*shell{}
	var current *shell
	for line := range strings.Lines(session) {
		line = strings.TrimSuffix(line, "\n")
		if m := prompt.FindStringSubmatch(line); m != nil {
			if current = shells[m[1]]; current == nil {
				current = startShell(t, state)
				shells[m[1]] = current
			}
			current.command(t, m[2], state)
		} else if current != nil {
			current.expect(t, line)
		}
	}
}

// shell is a running shell whose output, of both kinds, arrives line by line.
type shell struct {
	stdin io.Writer
	lines chan string
}

func startShell(t *testing.T, state string) *shell {
	t.Helper()
	cmd := exec.Command("bash")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state, "LOCKKEEPER_URL=", "CI=", "GORACE=atexit_sleep_ms=0")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	s := &shell{stdin: stdin, lines: make(chan string, 100)}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.lines <- lines.Text()
		}
		close(s.lines)
	}()
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
		out.Close()
	})
	return s
}

// command types one line. After one that goes on behind & it waits until its lock
// is held, as the time that a person needs to type the next line would do.
func (s *shell) command(t *testing.T, line, state string) {
	t.Helper()
	io.WriteString(s.stdin, line+"\n")
	if !strings.HasSuffix(line, "&") {
		return
	}
	eventually(t, "the command behind & holds its lock", func() bool {
		ls := exec.Command("lk", "ls")
		ls.Env = append(os.Environ(), "XDG_STATE_HOME="+state, "LOCKKEEPER_URL=", "GORACE=atexit_sleep_ms=0")
		out, err := ls.Output()
		return err == nil && strings.Contains(string(out), " held ")
	})
}

var duration = regexp.MustCompile(`<?\b(\d+(ms|s|m|h|d))+\b`)

func (s *shell) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got, ok := <-s.lines:
		pattern := regexp.QuoteMeta(duration.ReplaceAllString(want, "D"))
		pattern = strings.ReplaceAll(pattern, `\.\.\.`, ".*")
		if !ok || !regexp.MustCompile("^"+pattern+"$").MatchString(duration.ReplaceAllString(got, "D")) {
			t.Errorf("README.md says %q, and what comes is %q", want, got)
		}
	case <-time.After(patience):
		t.Errorf("README.md says %q, and nothing comes", want)
	}
}
