package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// impure is what package table may not import: time comes in with commands, and
// nothing else does.
var impure = map[string]string{
	"sync": "a Table is not safe for concurrent use; whoever shares one locks around it", "sync/atomic": "as for sync",
	"math/rand":    "the same commands must give the same table",
	"math/rand/v2": "as for math/rand",
	"crypto/rand":  "as for math/rand",
	"context":      "nothing waits in a table",
	"os":           "a table does no I/O",
	"net":          "a table does no I/O",
	"io":           "a table does no I/O",
	"log":          "events go out as values", "log/slog": "events go out as values",
	"runtime": "nothing of this process may change what a table does",
	"unsafe":  "nothing of this process may change what a table does",
}

var clocks = []string{"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Sleep"}

func TestTableIsPure(t *testing.T) {
	tree := loadTree(t)
	var files []*goFile
	for _, f := range tree.packages()["table"] {
		if !f.test {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		t.Fatal("package table has no files: this test looks in the wrong place")
	}
	for _, wrong := range impurities(tree, files) {
		t.Error(wrong)
	}
}

// impurities lists what the files of one package do that pure code may not.
func impurities(tree *tree, files []*goFile) (wrong []string) {
	kinds := typesOf(tree, files)
	say := func(pos token.Pos, text string) { wrong = append(wrong, tree.at(pos)+": "+text) }
	for _, f := range files {
		for _, spec := range f.syntax.Imports {
			if name, _ := strconv.Unquote(spec.Path.Value); impure[name] != "" {
				say(spec.Pos(), "table may not import "+name+": "+impure[name])
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				say(n.Pos(), "no goroutines in table: whoever runs a table (keeper) has them")
			case *ast.ChanType:
				say(n.Pos(), "no channels in table: events go out as values")
			case *ast.RangeStmt:
				if rangesMap(kinds, n.X) && !excused(tree, f, n.Pos()) {
					say(n.Pos(), "a map is ranged over in random order: range over a slice or sorted keys, or, if the order can't "+
						"be seen, end the line with // order does not matter: and why")
				}
			}
			if name, ok := isUse(n, "time", clocks...); ok {
				say(n.Pos(), "no clock in table: "+name+" is the caller's; take the time from Command.At")
			}
			return true
		})
	}
	return wrong
}

// rangesMap reports whether x is a map, or an iterator over one by package maps.
func rangesMap(kinds map[ast.Expr]types.TypeAndValue, x ast.Expr) bool {
	if call, ok := x.(*ast.CallExpr); ok {
		if _, ok := isUse(call.Fun, "maps", "All", "Keys", "Values", "Clone"); ok {
			return true
		}
	}
	if kind := kinds[x].Type; kind != nil {
		_, ok := kind.Underlying().(*types.Map)
		return ok
	}
	return false
}

// excused reports whether the line of pos says why the order does not matter.
func excused(tree *tree, f *goFile, pos token.Pos) bool {
	const excuse = "// order does not matter: "
	for _, group := range f.syntax.Comments {
		for _, c := range group.List {
			if tree.line(c.Pos()) == tree.line(pos) && strings.HasPrefix(c.Text, excuse) && len(c.Text) > len(excuse) {
				return true
			}
		}
	}
	return false
}

// typesOf finds the types of expressions in one package, as far as they follow
// from the package itself: packages that it imports are left empty, which is
// quick, and enough to know its own maps.
func typesOf(tree *tree, files []*goFile) map[ast.Expr]types.TypeAndValue {
	var syntax []*ast.File
	for _, f := range files {
		syntax = append(syntax, f.syntax)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{Importer: emptyImporter{}, Error: func(error) {}}
	config.Check("table", tree.fset, syntax, info) // errors are expected: see above
	return info.Types
}

type emptyImporter struct{}

func (emptyImporter) Import(name string) (*types.Package, error) {
	pkg := types.NewPackage(name, name[strings.LastIndexByte(name, '/')+1:])
	pkg.MarkComplete()
	return pkg, nil
}

// The rules above must find what they forbid.
func TestImpuritiesAreFound(t *testing.T) {
	const source = `package table
import ("time"; "sync"; "maps"; "slices")
type set map[string]bool
type T struct{ members set; byID map[int]*T; list []int }
func (t *T) f(m sync.Mutex) {
	for range t.members {}
	for range t.byID[1].members {}
	for range maps.Keys(t.byID) {}
	for k := range t.byID { delete(t.byID, k) } // order does not matter: all go
	for range t.byID {} // order does not matter:
	for range slices.Sorted(maps.Keys(t.byID)) {}
	for range t.list {}
	_ = time.Now()
	_ = time.Second
	go t.f(m)
	_ = make(chan int)
}`
	tree := &tree{fset: token.NewFileSet()}
	syntax, err := parser.ParseFile(tree.fset, "t.go", source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, wrong := range impurities(tree, []*goFile{{syntax: syntax}}) {
		line, _ := strconv.Atoi(strings.Split(wrong, ":")[1])
		lines = append(lines, line)
	}
	want := []int{2, 6, 7, 8, 10, 13, 15, 16}
	if !slices.Equal(lines, want) {
		t.Errorf("found in lines %v, want %v", lines, want)
	}
}
