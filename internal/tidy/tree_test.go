package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/lockkeeper/lockkeeper"

// goFile is one parsed Go file of this module, or of one nested in it.
type goFile struct {
	name      string // slash-separated, from the module's root
	pkg       string // its folder; "." for the root
	test      bool   // its name ends in _test.go
	generated bool
	nested    bool // it belongs to a module of its own, with imports of its own
	lines     int
	syntax    *ast.File
}

// tree is the module as it lies on disk.
type tree struct {
	fset  *token.FileSet
	files []*goFile // nested modules included, as in all
	all   []string  // every file but those of git
}

// root is the module's folder.
const root = "../.."

var load = sync.OnceValues(func() (*tree, error) {
	t := &tree{fset: token.NewFileSet()}
	nested := map[string]bool{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == ".git" || name == "bin" {
				return fs.SkipDir
			}
			_, err := os.Stat(filepath.Join(root, name, "go.mod"))
			nested[name] = name != "." && (err == nil || nested[path.Dir(name)])
			return nil
		}
		t.all = append(t.all, name)
		if !strings.HasSuffix(name, ".go") || strings.Contains(name, "testdata/") {
			return nil
		}
		return t.parse(name, nested[path.Dir(name)])
	})
	return t, err
})

func (t *tree) parse(name string, nested bool) error {
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return err
	}
	syntax, err := parser.ParseFile(t.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	t.files = append(t.files, &goFile{
		name: name, pkg: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
		nested: nested, generated: ast.IsGenerated(syntax), lines: strings.Count(string(text), "\n"), syntax: syntax,
	})
	return nil
}

func loadTree(t *testing.T) *tree {
	t.Helper()
	tree, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// packages lists the folders that hold Go files.
func (t *tree) packages() map[string][]*goFile {
	packages := map[string][]*goFile{}
	for _, f := range t.files {
		packages[f.pkg] = append(packages[f.pkg], f)
	}
	return packages
}

func (t *tree) at(pos token.Pos) string { return t.fset.Position(pos).String() }

// line is the line of pos in its file.
func (t *tree) line(pos token.Pos) int { return t.fset.Position(pos).Line }

// at is a line of f as text.
func (f *goFile) at(line int) string { return f.name + ":" + strconv.Itoa(line) }

// isUse reports whether n uses one of names of the package that is imported as
// pkg, as in time.Now.
func isUse(n ast.Node, pkg string, names ...string) (string, bool) {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	if x, ok := sel.X.(*ast.Ident); !ok || x.Name != pkg {
		return "", false
	}
	for _, name := range names {
		if sel.Sel.Name == name {
			return pkg + "." + name, true
		}
	}
	return "", false
}
