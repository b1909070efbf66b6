package tidy

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	codeSpan  = regexp.MustCompile("`([^`\n]+)`")
	link      = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)
	testName  = regexp.MustCompile(`^Test[A-Z0-9]\w*(/.+)?$`)
	fileName  = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+\.(go|md|sql|txt|txtar|conf)$`)
	fencedDoc = regexp.MustCompile("(?s)```.*?```")
)

// A document that names a test or a file which is not there promises what nobody
// shows.
func TestDocumentsNameWhatIsThere(t *testing.T) {
	tree := loadTree(t)
	there := namedThings(tree)
	for _, name := range tree.all {
		if path.Ext(name) != ".md" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range there.missing(name, string(text)) {
			t.Errorf("%s: %s", name, wrong)
		}
	}
}

// things are what a document may name.
type things struct {
	files    []string        // and folders
	tests    map[string]bool // functions
	subtests []string        // texts of tests, of which some are names of subtests
}

func namedThings(tree *tree) *things {
	n := &things{tests: map[string]bool{}}
	for _, f := range tree.all {
		for ; f != "."; f = path.Dir(f) {
			n.files = append(n.files, f)
		}
	}
	for _, f := range tree.files {
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.test && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				n.tests[fn.Name.Name] = true
			}
		}
		if !f.test && f.pkg != "enginetest" {
			continue
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			if lit, ok := node.(*ast.BasicLit); ok {
				if text, err := strconv.Unquote(lit.Value); err == nil {
					n.subtests = append(n.subtests, text)
				}
			}
			return true
		})
	}
	return n
}

// missing lists what the text of a document names that is not there.
func (n *things) missing(document, text string) (wrong []string) {
	for _, found := range link.FindAllStringSubmatch(text, -1) {
		to := found[1]
		if !strings.Contains(to, ":") && !slices.Contains(n.files, path.Join(path.Dir(document), to)) {
			wrong = append(wrong, "links to "+to+", which is not there: name what is")
		}
	}
	for _, found := range codeSpan.FindAllStringSubmatch(fencedDoc.ReplaceAllString(text, ""), -1) {
		switch span := found[1]; {
		case testName.MatchString(span):
			name, sub, _ := strings.Cut(span, "/")
			known := sub == "" || strings.Contains(sub, "…") || slices.ContainsFunc(n.subtests, func(s string) bool {
				return s == sub || strings.HasPrefix(s, sub+"/")
			})
			if !n.tests[name] || !known {
				wrong = append(wrong, "names the test "+span+", which is not there: name one that shows it")
			}
		case fileName.MatchString(span) && !slices.Contains(n.files, span):
			wrong = append(wrong, "names the file "+span+", which is not there: name what is, from the top of the tree")
		}
	}
	return wrong
}

// The test above must find what it is there to find.
func TestMissingThingsAreFound(t *testing.T) {
	n := &things{
		files:    []string{"docs/a.md", "docs", "x/y_test.go", "x"},
		tests:    map[string]bool{"TestA": true},
		subtests: []string{"R13/larger"},
	}
	for text, want := range map[string]int{
		"`TestA`": 0, "`TestB`": 1, "`TestA/R13`": 0, "`TestA/R13/larger`": 0, "`TestA/R14`": 1, "`TestA/…`": 0,
		"`x/y_test.go`":                 0,
		"`x/z_test.go`":                 1,
		"[a](a.md)":                     0,
		"[a](../x)":                     0,
		"[a](b.md)":                     1,
		"[a](https://example.com/b.md)": 0,
		"[a](a.md#part)":                0,
		"[a](#part)":                    0,
		"```\n`TestB`\n```":             0, "`LOCKKEEPER_URL`": 0,
	} {
		if got := n.missing("docs/b.md", text); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
}
