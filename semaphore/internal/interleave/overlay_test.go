package interleave_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const shim = "github.com/lockkeeper/lockkeeper/semaphore/internal/interleave"

// shimmed are the packages that this package stands in for. What it does not have does not compile.
var shimmed = map[string]bool{"sync": true, "sync/atomic": true, "runtime": true, "context": true, "hash/maphash": true}

// harmless are packages that share no memory between goroutines.
var harmless = map[string]bool{
	"cmp":                  true,
	"errors":               true,
	"fmt":                  true,
	"iter":                 true,
	"math":                 true,
	"math/bits":            true,
	"slices":               true,
	"strings":              true,
	"golang.org/x/sys/cpu": true, // for the size of a cache line
}

// knobs are constants of package semaphore that programs change: with the real values a key would
// leave only among many others.
var knobs = []patch{
	{"manager.go", "const maxIdle = 128", `var maxIdle = 128; func init() { runtime.Knob("maxIdle", &maxIdle) }`},
	{"manager.go", "runtime.GOMAXPROCS(0)-1)), 128)", "runtime.GOMAXPROCS(0)-1)), maxShards)"},
	{"manager.go", "// TryAcquire takes",
		`var maxShards = 128; func init() { runtime.Knob("maxShards", &maxShards) } // TryAcquire takes`},
	{"shard.go", "const minCells = 8", `var minCells = 8; func init() { sync.Knob("minCells", &minCells) }`},
	{"shard.go", "if s.calls%16 != 0 {", "if s.calls%uint64(evictEvery) != 0 {"},
	{"shard.go", "// usage is", `var evictEvery = 16; func init() { sync.Knob("evictEvery", &evictEvery) } // usage is`},
}

// patch replaces a text that occurs in a file exactly once.
type patch struct{ file, before, after string }

// originals is the suffix of files before the rewrite, for stories.
const originals = ".told"

// overlay writes the files of package semaphore into dir, patched and rewritten, and returns the
// file for go build -overlay.
func overlay(folder, dir string, patches []patch) (string, error) {
	texts, err := read(folder, patches)
	if err != nil {
		return "", err
	}
	rewritten, err := rewrite(texts)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range texts {
		file := filepath.Join(dir, name)
		replace[filepath.Join(folder, name)] = file
		if err := os.WriteFile(file, []byte(rewritten[name]), 0o600); err != nil {
			return "", err
		}
		if err := os.WriteFile(file+originals, []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, list, 0o600)
}

// read returns the patched texts of the package's files by name.
func read(folder string, patches []patch) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		texts[filepath.Base(file)] = string(text)
	}
	for _, p := range patches {
		if n := strings.Count(texts[p.file], p.before); n != 1 {
			return nil, fmt.Errorf("%s: the text to replace occurs %d times, not once:\n%s", p.file, n, p.before)
		}
		texts[p.file] = strings.Replace(texts[p.file], p.before, p.after, 1)
	}
	return texts, nil
}

// rewrite replaces the imports of shimmed packages, and makes each use of a guarded field check its
// mutex. Lines keep their numbers.
func rewrite(texts map[string]string) (map[string]string, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	for name, text := range texts {
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if err := onlyShimmed(fset, file); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	fields := newFields(fset, files)
	rewritten := map[string]string{}
	for _, file := range files {
		if err := fields.changes(file); err != nil {
			return nil, err
		}
		name := fset.Position(file.Pos()).Filename
		edits, err := fields.edits(file)
		if err != nil {
			return nil, err
		}
		rewritten[name] = edits.make(texts[name])
	}
	return rewritten, nil
}

// edit replaces the text between two offsets.
type edit struct {
	from, to int
	text     string
}

type edits []edit

func (e edits) make(text string) string {
	slices.SortFunc(e, func(a, b edit) int { return b.from - a.from })
	for _, edit := range e {
		text = text[:edit.from] + edit.text + text[edit.to:]
	}
	return text
}

func (f *fields) edits(file *ast.File) (all edits, _ error) {
	at := func(p token.Pos) int { return f.fset.Position(p).Offset }
	imported := ""
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if !shimmed[path] {
			continue
		}
		text := strconv.Quote(shim)
		imported = path[strings.LastIndexByte(path, '/')+1:]
		if spec.Name == nil {
			text = imported + " " + text
		} else {
			imported = spec.Name.Name
		}
		all = append(all, edit{at(spec.Path.Pos()), at(spec.Path.End()), text})
	}
	for _, use := range f.uses(file) {
		if imported == "" {
			return nil, fmt.Errorf("%s: a guarded field, in a file that imports no shimmed package",
				f.fset.Position(use.Pos()))
		}
		x := types.ExprString(use.X)
		all = append(all, edit{at(use.Pos()), at(use.End()),
			fmt.Sprintf("(*%s.Guarded(&%s.%s, &%s.%s))", imported, x, use.Sel.Name, x, guardedBy[f.name(use)])})
	}
	return all, nil
}

// onlyShimmed returns an error for code in a file that the scheduler would not see.
func onlyShimmed(fset *token.FileSet, file *ast.File) error {
	for _, spec := range file.Imports {
		if path, _ := strconv.Unquote(spec.Path.Value); !shimmed[path] && !harmless[path] {
			return fmt.Errorf("%s: semaphore imports %s: add what it uses to internal/interleave, or list it as harmless "+
				"in overlay_test.go",
				fset.Position(spec.Pos()), path)
		}
	}
	var wrong error
	ast.Inspect(file, func(n ast.Node) bool {
		what := ""
		switch n.(type) {
		case *ast.GoStmt:
			what = "a go statement"
		case *ast.ChanType:
			what = "a channel"
		case *ast.SelectStmt:
			what = "a select"
		}
		if what != "" && wrong == nil {
			wrong = fmt.Errorf("%s: semaphore has %s, which internal/interleave does not support: add it there",
				fset.Position(n.Pos()),
				what)
		}
		return true
	})
	return wrong
}
