package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/fence"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// The sessions in README.md run as they stand there: each line behind a prompt
// ("$ ", "one$ ", "two$ ") is given to the shell of that name, and the lines
// below must be what comes out of it. Durations may differ, and "..." is anything. A command with
// nothing below it says nothing, and has ended before the next line is typed. A prompt alone goes
// back to a shell whose command still runs. The tests of packages run it with the lk in the folder
// LK_INSTALLED.
func TestReadmeSessions(t *testing.T) {
	if folder := os.Getenv("LK_INSTALLED"); folder != "" {
		t.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	runDocument(t, &document{name: "README.md", dir: "../.."})
}

// So do those about the command.
func TestCommandsPageSessions(t *testing.T) {
	runDocument(t, &document{name: "docs/commands.md"})
}

// So do those in the page of the engine in a database, with a database of this test in
// place of the one in the page.
func TestDatabasePageSessions(t *testing.T) {
	url := testdb.Postgres(t).Database(t)
	runDocument(t, &document{name: "docs/engines/database.md", instead: []string{databaseAsWritten, url}})
}

// So do those in the page of the engine on Redis, with three servers of this test.
func TestRedisPageSessions(t *testing.T) {
	runDocument(t, &document{name: "docs/engines/redis.md", instead: []string{redisAsWritten, threeRedis(t)}})
}

// So do those for users of other locks, and the recipes, with what their URLs lead to.
func TestGuideSessions(t *testing.T) {
	postgres := testdb.Postgres(t)
	services := map[string]func(t *testing.T) (url string){
		databaseAsWritten:        func(t *testing.T) string { return postgres.Database(t) },
		redisAsWritten:           threeRedis,
		"lk://locks.example.com": diskServer,
		"http://127.0.0.1:8080":  fencedServer,
	}
	for _, folder := range []string{"coming-from", "recipes"} {
		pages, err := filepath.Glob("../../docs/" + folder + "/*.md")
		if err != nil || len(pages) == 0 {
			t.Fatalf("docs/%s has no pages; %v", folder, err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			if !sessionBlocks.Match(text) {
				continue
			}
			t.Run(folder+"/"+filepath.Base(page), func(t *testing.T) {
				t.Parallel()
				d := &document{name: strings.TrimPrefix(page, "../../")}
				for asWritten, start := range services {
					if strings.Contains(string(text), asWritten) {
						d.instead = append(d.instead, asWritten, start(t))
					}
				}
				runDocument(t, d)
			})
		}
	}
}

const (
	databaseAsWritten = "postgres://db.example.com/app"
	redisAsWritten    = "redis://10.0.0.1,10.0.0.2,10.0.0.3"
)

func diskServer(t *testing.T) (url string) {
	s := startServer(t, t.TempDir(), "--data", t.TempDir())
	t.Cleanup(func() { s.stop(t) })
	return s.url
}

// fencedServer is the server in docs/recipes/fence.md.
func fencedServer(t *testing.T) (url string) {
	save := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, number, _ := fence.FromContext(r.Context())
		fmt.Fprintln(w, "saved under fence", number)
	})
	mux := http.NewServeMux()
	resource := func(*http.Request) string { return "router1/config" }
	mux.Handle("PUT /config", fence.Handler(&fence.Memory{}, resource, save))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func threeRedis(t *testing.T) (url string) {
	var addrs []string
	for range 3 {
		addrs = append(addrs, testdb.Redis(t).Addr())
	}
	return "redis://" + strings.Join(addrs, ",")
}

var (
	sessionBlocks = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")
	scriptBlocks  = regexp.MustCompile("(?ms)^```\\w+ (\\S+)\n(.*?)^```$")
)

// runDocument runs the sessions of one document. Before that it writes the scripts that the document
// names: a block that begins with "```sh NAME", or another language, is the file NAME, as an editor saves it: a
// script that is to be started needs a chmod.
func runDocument(t *testing.T, d *document) {
	t.Helper()
	text, err := os.ReadFile("../../" + d.name)
	if err != nil {
		t.Fatal(err)
	}
	sessions := sessionBlocks.FindAllStringSubmatch(string(text), -1)
	if len(sessions) == 0 {
		t.Fatalf("%s has no session: a block that begins with ```console", d.name)
	}
	d.state, d.shells = t.TempDir(), map[string]*shell{}
	t.Cleanup(d.end)
	if d.dir == "" {
		d.dir = t.TempDir()
	}
	backwards := slices.Clone(d.instead)
	slices.Reverse(backwards)
	d.typed, d.shown = strings.NewReplacer(d.instead...), strings.NewReplacer(backwards...)
	for _, script := range scriptBlocks.FindAllStringSubmatch(string(text), -1) {
		if err := os.WriteFile(filepath.Join(d.dir, script[1]), []byte(d.typed.Replace(script[2])), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, session := range sessions {
		d.run(t, session[1])
	}
}

// document is what one reader types, from top to bottom.
type document struct {
	name    string
	dir     string   // where it is typed; "" for an empty folder
	instead []string // pairs: a URL in the document, and the one in its place

	state        string
	typed, shown *strings.Replacer // of commands; of what comes out
	shells       map[string]*shell
}

var prompt = regexp.MustCompile(`^(\w*)\$(?: (.*))?$`)

func (d *document) run(t *testing.T, session string) {
	t.Helper()
	var current *shell
	lines := strings.Split(strings.TrimSuffix(session, "\n"), "\n")
	for i, line := range lines {
		m := prompt.FindStringSubmatch(line)
		if m == nil {
			if current != nil {
				current.expect(t, line)
			}
			continue
		}
		if current = d.shells[m[1]]; current == nil {
			current = startShell(t, d)
			d.shells[m[1]] = current
		}
		if m[2] == "" {
			continue
		}
		current.command(t, d.typed.Replace(m[2]))
		if comment := m[2][0] == '#'; !comment && (i+1 == len(lines) || prompt.MatchString(lines[i+1])) {
			current.expectNothing(t)
		}
	}
}

// shell is a running shell whose output, of both kinds, arrives line by line.
type shell struct {
	*document
	url   string // of the engine that was chosen in it; "" if none was
	stdin io.WriteCloser
	lines chan string
	wait  func() error // until it has ended
}

func startShell(t *testing.T, d *document) *shell {
	t.Helper()
	cmd := exec.Command("bash")
	cmd.Dir = d.dir
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
	s := &shell{document: d, stdin: stdin, lines: make(chan string, 100), wait: cmd.Wait}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.lines <- lines.Text()
		}
		close(s.lines)
		out.Close()
	}()
	return s
}

// end ends all shells. What still runs behind & in one of them may be what another one waits for.
func (d *document) end() {
	for _, s := range d.shells {
		io.WriteString(s.stdin, "kill $(jobs -p) 2>&-\n")
		s.stdin.Close()
	}
	for _, s := range d.shells {
		s.wait()
	}
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

// expectNothing waits for the end of the command, which says nothing.
func (s *shell) expectNothing(t *testing.T) {
	t.Helper()
	const end = "=== the command has ended ==="
	io.WriteString(s.stdin, "echo '"+end+"'\n")
	s.expect(t, end)
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
