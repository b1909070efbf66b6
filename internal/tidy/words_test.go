package tidy

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// A private word is part of no identifier of a package, but its replacement.
type privateWord struct {
	words    string // one or more, as in camel case but lower
	packages string // prefixes of folders; "" for all
	instead  string
}

var privateWords = []privateWord{
	{"told tell untold tells", "", "notified, notify, pending"},
	{"heard hear hears hearing", "", "acknowledged, listen, subscription"},
	{"believed toldin", "", "last unacknowledged end, the lease that stated it"},
	{"ghost ghosts", "", "unacknowledged holder"},
	{"knot knots spell imagine dream", "", "deadlock, describe, simulate, scratch copy"},
	{"outlasted", "", "hopeless wait"},
	{"bell bells rung", "", "wakeup, wake, woken"},
	{"ears deaf", "", "listener, retry pause"},
	{"lane lanes", "", "worker"},
	{"barred deserted vain kin", "", "blocked by an exclusive head, drained prefix, without effect, wait class"},
	{"near apart tip few", "engine", "local waiters, concurrent, queue prefix, limit"},
	{"door hello", "", "validate, handshake"},
	{"strangers doorman turnstile shares budget", "internal/serve", "unauthenticated connections, limiter, usage, quota"},
	{"seat doubt sure giveback", "internal/serve", "session usage, unknown outcome, release"},
	{"prod hurry doze", "", "ping, flush now, rate limit, sleep"},
	{"tidings tenancy tenant", "", "observation, HTTP session"},
	{"pace paces", "", "hold-time estimate"},
	{"mood weather storm bent", "", "fault profile, fault schedule, mutant engine"},
	{"fate", "", "outcome"},
	{"manners", "", "writer policy"},
	{"trouble", "", "name the error"},
	{"anew whoever", "", "again, name the actor"},
	{"canal", "", "semaphore"},
}

// TestNamesAreStandardTerms looks for identifiers with private words that product code declares.
func TestNamesAreStandardTerms(t *testing.T) {
	tree := loadTree(t)
	var found []string
	for _, f := range tree.files {
		if f.test || f.generated || f.nested || f.pkg == "internal/tidy" {
			continue
		}
		for _, name := range declared(f.syntax) {
			if p, word := private(f.pkg, name.Name); word != "" {
				found = append(found, fmt.Sprintf("%s: %s has the word %q, which is private to this project: use %s",
					tree.at(name.Pos()), name.Name, word, p.instead))
			}
		}
	}
	for _, name := range found {
		t.Error(name)
	}
}

// declared returns the identifiers that a file declares: of types, functions, constants, variables,
// fields, parameters and results.
func declared(f *ast.File) (names []*ast.Ident) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.Field:
			names = append(names, n.Names...)
		case *ast.AssignStmt:
			if n.Tok.String() == ":=" {
				for _, left := range n.Lhs {
					if name, ok := left.(*ast.Ident); ok {
						names = append(names, name)
					}
				}
			}
		}
		return true
	})
	return names
}

// private returns the private word in a name that package pkg declares; "" if there is none.
func private(pkg, name string) (privateWord, string) {
	parts := camelWords(name)
	for _, p := range privateWords {
		if p.packages != "" && !strings.HasPrefix(pkg, p.packages) {
			continue
		}
		for _, word := range strings.Fields(p.words) {
			if slices.Contains(parts, word) {
				return p, word
			}
		}
	}
	return privateWord{}, ""
}

// camelWords splits a name in camel case into lower-case words.
func camelWords(name string) (words []string) {
	start := 0
	runes := []rune(name)
	for i := range runes {
		if i > start && unicode.IsUpper(runes[i]) && (!unicode.IsUpper(runes[i-1]) ||
			i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			words = append(words, strings.ToLower(string(runes[start:i])))
			start = i
		}
	}
	return append(words, strings.ToLower(string(runes[start:])))
}

// Fixed phrases that a reader has to read twice.
var phrases = regexp.MustCompile(
	`(?i)\b(for ever|in vain|who waits|who wait|who asks|whoever|anew|of no account|` +
		`graver|what was read|what was asked|those that asked|of which some)\b`)

// TestProseIsPlain looks for the phrases in comments, texts and documents, but the one that forbids them.
func TestProseIsPlain(t *testing.T) {
	for _, name := range loadTree(t).all {
		if ext := path.Ext(name); ext != ".go" && ext != ".md" && ext != ".proto" && ext != ".sql" && ext != ".txtar" ||
			strings.HasPrefix(name, "internal/tidy/") || name == "CONTRIBUTING.md" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, phrase := range phrases.FindAllString(string(text), -1) {
			t.Errorf("%s has %q: write forever, without effect, again, or name the actor, such as a waiter", name, phrase)
		}
	}
}

func TestPrivateWordsAreFound(t *testing.T) {
	for name, want := range map[string]string{
		"toldIn": "told", "askTold": "told", "fold": "", "TLSHello": "hello", "headLine": "", "deafPause": "deaf",
		"Heard": "heard", "shell": "",
	} {
		if _, got := private("engine/x", name); got != want {
			t.Errorf("%s: found %q, want %q", name, got, want)
		}
	}
	if _, got := private("table", "few"); got != "" {
		t.Error("few is forbidden in engines alone")
	}
}
