package tidy

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Every engine is judged by the one suite.
func TestEveryEngineRunsTheSuite(t *testing.T) {
	for pkg, files := range loadTree(t).packages() {
		if path.Dir(pkg) != "engine" || pkg == "engine/all" {
			continue
		}
		runs := false
		for _, f := range files {
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				_, ok := isUse(n, "enginetest", "Run")
				runs = runs || f.test && ok
				return !runs
			})
		}
		if !runs {
			t.Errorf("%s: no test calls enginetest.Run: add one, with a harness that opens the engine", pkg)
		}
	}
}

// A sleep waits too long or not long enough. In the fake time of a synctest
// bubble it is exact and costs nothing.
func TestNobodySleeps(t *testing.T) {
	tree := loadTree(t)
	for _, f := range tree.files {
		if f.test && importsPackage(f, "testing/synctest") {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if _, ok := isUse(n, "time", "Sleep"); ok {
				t.Errorf("%s: time.Sleep: wait for the event itself, with a timer beside it only as a bound; in a test about "+
					"time use a testing/synctest bubble", tree.at(n.Pos()))
			}
			return true
		})
	}
}

func importsPackage(f *goFile, name string) bool {
	for _, spec := range f.syntax.Imports {
		if spec.Path.Value == strconv.Quote(name) {
			return true
		}
	}
	return false
}

// A story in testdata that no test reads proves nothing.
func TestEveryStoryIsRun(t *testing.T) {
	tree := loadTree(t)
	packages := tree.packages()
	for _, name := range tree.all {
		i := strings.Index("/"+name, "/testdata/")
		if i < 0 {
			continue
		}
		pkg, story := path.Clean("./"+name[:i]), name[i:]
		if strings.HasPrefix(story, "testdata/fuzz/") {
			continue // go test reads them
		}
		if ext := path.Ext(story); ext != ".txt" && ext != ".txtar" {
			t.Errorf("%s: a story ends in .txt or .txtar, else its runner passes it over: rename it", name)
		}
		if !named(packages[pkg], story) {
			t.Errorf("%s: no test of package %s names it or a folder above it: run it, or remove it", name, pkg)
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if word, _, _ := strings.Cut(strings.TrimSpace(line), " "); word == "skip" {
				t.Errorf("%s: skips itself whatever the machine: give the skip a condition, or remove the story", name)
			}
		}
	}
}

// named reports whether a test among files has a string that is the story's
// path, a folder above it, or a pattern for it.
func named(files []*goFile, story string) bool {
	found := false
	for _, f := range files {
		if !f.test {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, _ := strconv.Unquote(lit.Value)
			matches, _ := path.Match(text, story)
			found = found || matches || strings.HasPrefix(text, "testdata") &&
				strings.HasPrefix(story, strings.TrimSuffix(text, "/")+"/")
			return !found
		})
	}
	return found
}

// The tree speaks of the product alone: not of places, talks or lists that a
// reader does not have.
func TestNothingOutsideIsMentioned(t *testing.T) {
	// Written in pieces, so that this file doesn't mention them.
	outside := []string{"/wo" + "rk/", "../sha" + "red", "issue" + " #"}
	for _, name := range loadTree(t).all {
		if path.Base(name) == "go.sum" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			for _, word := range outside {
				if strings.Contains(strings.ToLower(line), word) {
					t.Errorf("%s:%d: mentions %q, which a reader of the project does not have: say here what it says", name, number,
						word)
				}
			}
		}
	}
}
