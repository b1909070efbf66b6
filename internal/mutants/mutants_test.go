package mutants

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

var rewrite = flag.Bool("rewrite", false, "write docs/mutants.md again")

const root = "../.."

// TestEveryMutantIsCaught plants each bug by an overlay, so that no file is
// touched, and wants its catcher to fail: by a failed test, not by code that does not build.
func TestEveryMutantIsCaught(t *testing.T) {
	testmode.NeedLong(t, "it builds the code once for each mutant")
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.bug, " ", "_"), func(t *testing.T) {
			t.Parallel()
			out, err := m.run(t)
			switch {
			case err == nil:
				t.Errorf("%s lives: %s passes with it", m.bug, m.catcher)
			case !strings.Contains(out, "--- FAIL") && !strings.Contains(out, "panic:"):
				t.Errorf("%s does not build:\n%s", m.bug, out)
			}
		})
	}
}

// run runs the catcher with the mutant planted.
func (m mutant) run(t *testing.T) (string, error) {
	file, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.before); n != 1 {
		t.Fatalf("%s: the text to be replaced stands there %d times, not once:\n%s", m.file, n, m.before)
	}
	dir := t.TempDir()
	planted := filepath.Join(dir, "planted.go")
	if err := os.WriteFile(planted, []byte(strings.Replace(string(source), m.before, m.after, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: planted}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	pkg, test, _ := strings.Cut(m.catcher, " ")
	parts := strings.Split(test, "/")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-overlay", list, "-run",
		"^"+strings.Join(parts, "/"), "./"+pkg)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A change of a line that a mutant changes must change the mutant too.
func TestMutantsFitTheCode(t *testing.T) {
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Error(err)
		} else if n := strings.Count(string(text), m.before); n != 1 {
			t.Errorf("%q: %s has the text %q %d times, want once: change the mutant with the code", m.bug, m.file, m.before, n)
		}
		if !hasTest(t, m.catcher) {
			t.Errorf("%q: there is no test %s: name one that fails with it", m.bug, m.catcher)
		}
	}
}

// hasTest reports whether there is the test that a catcher names, in its package.
func hasTest(t *testing.T, catcher string) bool {
	pkg, name, _ := strings.Cut(catcher, " ")
	name, _, _ = strings.Cut(name, "/")
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name) {
			return true
		}
	}
	return false
}

// TestTableOfMutants holds docs/mutants.md against the list.
func TestTableOfMutants(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Planted bugs and who catches them\n\n" +
		"A test that can't fail proves nothing. Each of these bugs is planted into the code by\n" +
		"`go test ./internal/mutants`, one at a time, and the test named beside it must fail.\n\n" +
		"| bug | planted in | caught by |\n|---|---|---|\n")
	for _, m := range mutants {
		fmt.Fprintf(&b, "| %s | `%s` | `%s` |\n", m.bug, m.file, m.catcher)
	}
	file := filepath.Join(root, "docs", "mutants.md")
	if *rewrite {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Errorf("docs/mutants.md is out of date: run go test ./internal/mutants -run TableOfMutants -rewrite")
	}
}
