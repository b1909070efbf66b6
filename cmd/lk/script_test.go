package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lockkeeper/lockkeeper"
)

// The test binary is also the programs that the sessions in testdata call.
var programs = map[string]func(){
	"lk":     func() { os.Exit(mainCode()) },
	"await":  func() { os.Exit(await(os.Args[1:])) },
	"until":  func() { os.Exit(until(os.Args[1], os.Args[2:])) },
	"revoke": func() { os.Exit(revoke(os.Args[1])) },
	"lkfew":  runFew,
}

func TestMain(m *testing.M) {
	machineFolder = os.Getenv("TEST_MACHINE_FOLDER") // never the one of the machine that tests run on
	testscript.Main(m, programs)
}

// Each file in testdata is a session at a terminal, with the real program. Where no
// engine is named its locks are in a file.
func TestSessions(t *testing.T) { runSessions(t, "testdata", "file", nil) }

// The same sessions go as well where a server keeps the locks, but for what is
// about files: with locks in memory, and in the deep mode on a disk too.
func TestSessionsAtServer(t *testing.T) {
	for _, engine := range testmode.Pick([]string{"mem:"}, []string{"mem:", "disk:data"}) {
		scheme, _, _ := strings.Cut(engine, ":")
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			runSessions(t, "testdata", "server", func(env *testscript.Env) error {
				folder := t.TempDir()
				s := startServer(t, folder, "--engine", engine)
				env.Setenv(engineVariable, s.url)
				env.Defer(func() { s.stop(t) })
				return nil
			})
		})
	}
}

// The sessions of operators of clusters, with several servers each.
func TestClusterSessions(t *testing.T) {
	testmode.NeedLong(t, "TestSessions/cluster is the short form")
	runSessions(t, filepath.Join("testdata", "cluster"), "file", nil)
}

// runSessions runs the sessions in a folder where locks are kept in that way, which is a
// condition in them. setup makes one of them ready; it may be nil.
func runSessions(t *testing.T, folder, kept string, setup func(env *testscript.Env) error) {
	if signal.Ignored(os.Interrupt) {
		// Tests that run in the background are not interrupted, and nor would be
		// the programs of the sessions. What is caught here is not ignored there.
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 folder,
		RequireExplicitExec: true,
		// After it the programs of a session that hangs are killed. Without it a failed session waits for
		// its programs in the background, and one that is stopped never ends.
		Deadline: time.Now().Add(testmode.Pick(6*time.Minute, 20*time.Minute)),
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_STATE_HOME", "")
			env.Setenv("GOCACHE", goCache())          // for sessions that run go test: there is no other in that home
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else every lk takes a second longer under the race detector
			if setup == nil {
				return nil
			}
			return setup(env)
		},
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			if cond != "file" && cond != "server" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			return cond == kept, nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code": exitsWith,
		},
	})
}

// goCache is where the go command that runs these tests keeps what it built.
func goCache() string {
	if named := os.Getenv("GOCACHE"); named != "" {
		return named
	}
	caches, err := os.UserCacheDir()
	if err != nil {
		return "off"
	}
	return filepath.Join(caches, "go-build")
}

// patience bounds every wait of a session, so that a broken one ends.
const patience = 20 * time.Second

// await waits until the file args[0] exists and, if args[1] is given, has a
// match of that expression.
func await(args []string) int {
	pattern := regexp.MustCompile(strings.Join(args[1:], " "))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for {
		text, err := os.ReadFile(args[0])
		if err == nil && pattern.Match(text) {
			return 0
		}
		select {
		case <-tick.C:
		case <-late:
			fmt.Fprintf(os.Stderr, "await: %s %s: not within %s; it has %q\n", filepath.Base(args[0]), pattern, patience, text)
			return 1
		}
	}
}

// until runs a command until its output matches the expression, and prints that output.
func until(expression string, command []string) int {
	pattern := regexp.MustCompile(expression)
	late := time.After(patience)
	for {
		text, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		if pattern.Match(text) {
			os.Stdout.Write(text)
			return 0
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-late:
			fmt.Fprintf(os.Stderr, "until: %s of %q: not within %s; it prints %s (%v)\n", pattern, command, patience, text, err)
			return 1
		}
	}
}

// eventually waits until ok, for what there is no event to wait for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick, late := time.NewTicker(time.Millisecond), time.After(patience)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// revoke takes away, by force, what is held at a path.
func revoke(path string) int {
	a := &app{stderr: os.Stderr, open: lockkeeper.Open}
	ctx := context.Background()
	client, err := a.connect(ctx)
	if err != nil {
		return a.exitCode(err)
	}
	defer client.Close()
	for status, err := range client.List(ctx, lockkeeper.Query{Meets: lockkeeper.Path(path)}) {
		if err == nil {
			err = client.Revoke(ctx, status.Ref, true, lockkeeper.Label{As: "ops", Note: "stuck"})
		}
		if err != nil {
			return a.exitCode(err)
		}
	}
	return 0
}

// exitsWith is "code N PROGRAM ARG...": the program must exit with exactly that code.
func exitsWith(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program [args...]")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var ended *exec.ExitError
		if !errors.As(err, &ended) {
			ts.Fatalf("%v", err)
		}
		got = ended.ExitCode()
	}
	if want := args[0]; strconv.Itoa(got) != want {
		ts.Fatalf("exit code %d, want %s", got, want)
	}
}
