package tidy

import (
	"go/ast"
	"regexp"
	"strconv"
	"testing"
)

// schemePrefix matches a text that begins as the URL of an engine does, or that is the name of a
// scheme.
var schemePrefix = regexp.MustCompile(`^((mem|disk|sqlite|postgres|postgresql|mysql|mariadb|rediss?|cluster):` +
	`|lks?:(//|$)|(mem|disk|sqlite|postgres|postgresql|mysql|mariadb|lks)$)`)

// What lk knows of an engine comes from its scheme, so that a new engine needs no line in lk.
func TestCommandKnowsNoScheme(t *testing.T) {
	tree := loadTree(t)
	for _, f := range tree.files {
		if f.pkg != "cmd/lk" || f.test {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok {
				if text, err := strconv.Unquote(lit.Value); err == nil && schemePrefix.MatchString(text) {
					t.Errorf("%s: %s names a scheme: ask lockkeeper.SchemeOf for what lk must know of it, or have the engine's "+
						"package make the URL", tree.at(lit.Pos()), lit.Value)
				}
			}
			return true
		})
	}
}

// An ability that only some engines have is an interface with a name and a contract. An
// anonymous one is a promise that nobody can find.
func TestAbilitiesHaveNames(t *testing.T) {
	tree := loadTree(t)
	for _, f := range tree.files {
		if f.test || f.generated {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if assertion, ok := n.(*ast.TypeAssertExpr); ok {
				if _, anonymous := assertion.Type.(*ast.InterfaceType); anonymous {
					t.Errorf("%s: an anonymous interface is asserted: declare it with a name and a contract, those of engines in "+
						"capabilities.go", tree.at(n.Pos()))
				}
			}
			return true
		})
	}
}
