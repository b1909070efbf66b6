package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// The sessions in README.md run as they stand there: each line behind a prompt
// ("$ ", "one$ ", "two$ ") is given to the shell of that name, and the lines
// below must be what comes out of it. Durations may differ, and "..." is anything.
func TestReadmeSessions(t *testing.T) {
	runDocument(t, "README.md", strings.NewReplacer(), strings.NewReplacer())
}

// So do those about the command.
func TestCommandsPageSessions(t *testing.T) {
	runDocument(t, "docs/commands.md", strings.NewReplacer(), strings.NewReplacer())
}

// So do those in the page of the engine in a database, with a database of this test in
// place of the one in the page.
func TestDatabasePageSessions(t *testing.T) {
	const asWritten = "postgres://db.example.com/app"
	url := testdb.Postgres(t).Database(t)
	runDocument(t, "docs/engines/database.md", strings.NewReplacer(asWritten, url), strings.NewReplacer(url, asWritten))
}

// So do those in the page of the engine on Redis, with three servers of this test.
func TestRedisPageSessions(t *testing.T) {
	const asWritten = "redis://10.0.0.1,10.0.0.2,10.0.0.3"
	var addrs []string
	for range 3 {
		addrs = append(addrs, testdb.Redis(t).Addr())
	}
	url := "redis://" + strings.Join(addrs, ",")
	runDocument(t, "docs/engines/redis.md", strings.NewReplacer(asWritten, url), strings.NewReplacer(url, asWritten))
}

// runDocument runs the sessions of one document; typed rewrites the commands, and shown the
// expected output.
func runDocument(t *testing.T, name string, typed, shown *strings.Replacer) {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Fatalf("%s has no session: a block that begins with ```console", name)
	}
	d := &document{name: name, state: t.TempDir(), typed: typed, shown: shown}
	for _, block := range blocks {
		d.run(t, block[1])
	}
}

// document is what one reader types, from top to bottom.
type document struct {
	name, state  string
	typed, shown *strings.Replacer
}

var prompt = regexp.MustCompile(`^(\w*)\$ (.*)$`)

func (d *document) run(t *testing.T, session string) {
	t.Helper()
	shells := map[string]*shell{}
	var current *shell
	for line := range strings.Lines(session) {
		line = strings.TrimSuffix(line, "\n")
		if m := prompt.FindStringSubmatch(line); m != nil {
			if current = shells[m[1]]; current == nil {
				current = startShell(t, d)
				shells[m[1]] = current
			}
			current.command(t, d.typed.Replace(m[2]))
		} else if current != nil {
			current.expect(t, line)
		}
	}
}

// shell is a running shell whose output, of both kinds, arrives line by line.
type shell struct {
	*document
	url   string // of the engine that was chosen in it; "" if none was
	stdin io.Writer
	lines chan string
}

func startShell(t *testing.T, d *document) *shell {
	t.Helper()
	cmd := exec.Command("bash")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+d.state, "LOCKKEEPER_URL=", "CI=", "GORACE=atexit_sleep_ms=0")
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
	s := &shell{document: d, stdin: stdin, lines: make(chan string, 100)}
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
func (s *shell) command(t *testing.T, line string) {
	t.Helper()
	if url, chosen := strings.CutPrefix(line, "export LOCKKEEPER_URL="); chosen {
		s.url = url
	}
	if !strings.HasSuffix(line, "&") {
		io.WriteString(s.stdin, line+"\n")
		return
	}
	before := s.latest()
	io.WriteString(s.stdin, line+"\n")
	eventually(t, "the command behind & holds its lock", func() bool { return s.latest() > before })
}

var heldFence = regexp.MustCompile(`"state":"held".*"fence":(\d+)`)

// latest is the fence of the latest of those that hold something; 0 if there is none.
func (s *shell) latest() (fence int) {
	ls := exec.Command("lk", "ls", "--json")
	ls.Env = append(os.Environ(), "XDG_STATE_HOME="+s.state, "LOCKKEEPER_URL="+s.url, "GORACE=atexit_sleep_ms=0")
	out, _ := ls.Output() // nothing, if there is no file yet
	for _, found := range heldFence.FindAllStringSubmatch(string(out), -1) {
		n, _ := strconv.Atoi(found[1])
		fence = max(fence, n)
	}
	return fence
}

var timeSpan = regexp.MustCompile(`<?\b(\d+(ms|s|m|h|d))+\b`)

func (s *shell) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case got, ok := <-s.lines:
		got = s.shown.Replace(got)
		pattern := regexp.QuoteMeta(timeSpan.ReplaceAllString(want, "D"))
		pattern = strings.ReplaceAll(pattern, `\.\.\.`, ".*")
		if !ok || !regexp.MustCompile("^"+pattern+"$").MatchString(timeSpan.ReplaceAllString(got, "D")) {
			t.Errorf("%s says %q, and what comes is %q", s.name, want, got)
		}
	case <-time.After(patience):
		t.Errorf("%s says %q, and nothing comes", s.name, want)
	}
}
