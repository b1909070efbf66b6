package httpapi

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// clients are the programs in examples/ that run a command while they hold a lock.
var clients = map[string][]string{
	"with-lock.sh":  {"sh", "../../../examples/with-lock.sh"},
	"lockkeeper.py": {"python3", "../../../examples/lockkeeper.py"},
}

// onEachClient runs a test with each of them.
func onEachClient(t *testing.T, test func(t *testing.T,
	run func(v *village, path, script string, env ...string) (int, string))) {
	for name, program := range clients {
		t.Run(name, func(t *testing.T) {
			for _, needs := range []string{program[0], "curl"} {
				if _, err := exec.LookPath(needs); err != nil {
					if os.Getenv("CI") != "" {
						t.Fatal(needs + " is not installed: make tools does that")
					}
					t.Skip(needs + " is not installed")
				}
			}
			test(t, func(v *village, path, script string, env ...string) (int, string) {
				return v.runs(program, path, script, env)
			})
		})
	}
}

// runs runs a script under a lock of path, and returns the exit code and all that was said.
func (v *village) runs(program []string, path, script string, env []string) (int, string) {
	v.Helper()
	c := exec.CommandContext(v.Context(), program[0], program[1], path, "sh", "-c", script)
	c.Env = append(append(os.Environ(), "LOCKKEEPER_HTTP="+v.url, "L="+v.url+"/v1", "BEAT=0.1", "LOCKKEEPER_TTL=1",
		"no_proxy=*", "PYTHONDONTWRITEBYTECODE=1"), env...)
	var said bytes.Buffer
	c.Stdout, c.Stderr, c.WaitDelay = &said, &said, time.Second
	err := c.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), said.String()
	}
	if err != nil {
		v.Fatalf("%v: %s", err, said.String())
	}
	return 0, said.String()
}

// patientTTL lets a client keep its lock on a machine that stands still, where its end is no subject.
const patientTTL = "LOCKKEEPER_TTL=20"

// TestExampleHoldsWhileItWorks: the command runs once, under the lock, after the
// holder before it; its exit code is passed on, and nothing is left.
func TestExampleHoldsWhileItWorks(t *testing.T) {
	onEachClient(t, func(t *testing.T, run func(*village, string, string, ...string) (int, string)) {
		v := onDisk(t)
		v.ok("me", "db/x")
		go func() { // frees it once somebody waits for it
			for st, err := range v.engine.List(t.Context(), lockkeeper.Query{Meets: "db/x", Follow: true}) {
				if err != nil || st.State == lockkeeper.Waiting {
					v.ask("DELETE", "/v1/grab/db/x?as=me", "")
					return
				}
			}
		}()
		code, said := run(v, "db/x", `curl -sS "$L/grab/db/x"; exit 7`, patientTTL)
		if code != 7 || strings.Count(said, `"status":"taken","held":1,"waiting":0`) != 1 {
			t.Errorf("%d, %s; want it run once, under the lock", code, said)
		}
		if all := v.held(""); len(all) != 0 {
			t.Errorf("left: %v", all)
		}
	})
}

// TestExampleStopsWhenItsLockIsLost: a command whose lock is taken away is ended, also
// if the same name could have it again.
func TestExampleStopsWhenItsLockIsLost(t *testing.T) {
	onEachClient(t, func(t *testing.T, run func(*village, string, string, ...string) (int, string)) {
		v := onDisk(t)
		cleaned := filepath.Join(t.TempDir(), "cleaned")
		code, said := run(v, "db/x", `
claim=$(curl -sS "$L/claims?state=held" | sed 's/.*"claim":"\([^"]*\)".*/\1/')
curl -sS -o /dev/null -X POST --json '{"force":true}' "$L/claims/$claim/revoke"
exec sleep 50`, "CLEANUP=touch "+cleaned)
		if code != 76 || !strings.Contains(said, "db/x: the lock was lost") {
			t.Errorf("%d, %s; want that it was lost", code, said)
		}
		if _, err := os.Stat(cleaned); err == nil {
			t.Error("it cleaned up without the lock")
		}
		if all := v.held(""); len(all) != 0 {
			t.Errorf("left: %v", all)
		}
	})
}

// TestExampleCleansUpUnderTheLock: of the shell, which has a clean-up.
func TestExampleCleansUpUnderTheLock(t *testing.T) {
	v := onDisk(t)
	code, said := v.runs(clients["with-lock.sh"], "db/x", "echo worked", []string{`CLEANUP=curl -sS "$L/grab/db/x"`,
		patientTTL})
	if code != 0 || !strings.HasPrefix(said, "worked\n") || !strings.Contains(said, `"status":"taken","held":1`) {
		t.Errorf("%d, %s", code, said)
	}
}

// TestExampleIsRefused: what is refused is not asked for again and again, and the command
// does not run; with the token that the server asks for it does.
func TestExampleIsRefused(t *testing.T) {
	onEachClient(t, func(t *testing.T, run func(*village, string, string, ...string) (int, string)) {
		e := memlock.New()
		defer e.Close()
		secret, digest := access.NewToken()
		v := villageUnder(t, e, &access.Policy{
			Tokens: []access.Token{{Name: "ci", Digest: digest}},
			Rules:  []access.Rule{{Who: []string{"ci"}, May: []access.Verb{access.Lock}, Paths: []string{"ci"}}},
		})
		for _, c := range []struct {
			path, token string
			code        int
		}{{"ci/x", "", 1}, {"db", secret, 1}, {"ci/x", secret, 0}} {
			code, said := run(v, c.path, "echo worked", "LOCKKEEPER_TOKEN="+c.token)
			if code != c.code || strings.Contains(said, "worked") != (c.code == 0) || strings.Contains(said, secret) {
				t.Errorf("%s: %d, %s; want %d", c.path, code, said, c.code)
			}
		}
	})
}
