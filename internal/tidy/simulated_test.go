package tidy

import (
	"strconv"
	"strings"
	"testing"
)

// simulated is the package with the simulation of a cluster, and unsimulated are packages that none of
// the packages that the simulation links may import, and why. A simulation that reaches the network, a
// process or a database does not replay from its seed.
const simulated = "engine/quorumlock/internal/replica"

var unsimulated = map[string]string{
	"net":          "messages are values of the simulation",
	"net/http":     "as for net",
	"crypto/tls":   "as for net",
	"os/exec":      "machines are values of the simulation",
	"database/sql": "disks are values of the simulation",
	"modernc.org/": "as for database/sql",
}

// linked adds to seen the packages of this module that pkg links, with itself, and what each of them
// imports from elsewhere: by package, with the position of the import. With tests, the tests in pkg
// count too; those in package pkg_test bring their own surroundings.
func linked(tree *tree, pkg string, tests bool, seen map[string]map[string]string) {
	if seen[pkg] != nil {
		return
	}
	seen[pkg] = map[string]string{}
	for _, f := range tree.packages()[pkg] {
		if f.test && (!tests || strings.HasSuffix(f.syntax.Name.Name, "_test")) {
			continue
		}
		for _, spec := range f.syntax.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			switch {
			case name == module:
				linked(tree, ".", false, seen)
			case strings.HasPrefix(name, module+"/"):
				linked(tree, strings.TrimPrefix(name, module+"/"), false, seen)
			default:
				seen[pkg][name] = tree.at(spec.Pos())
			}
		}
	}
}

func TestSimulationLinksNoSurroundings(t *testing.T) {
	tree := loadTree(t)
	seen := map[string]map[string]string{}
	linked(tree, simulated, true, seen)
	for _, part := range []string{simulated, "engine/quorumlock/internal/voters", "table", ".", "history",
		"internal/record", "internal/deadlines"} {
		if seen[part] == nil {
			t.Errorf("the simulation does not link %s: this test looks in the wrong place", part)
		}
	}
	for pkg, imports := range seen { // order does not matter: each by itself
		for name, place := range imports { // order does not matter: each by itself
			for no, why := range unsimulated { // order does not matter: each by itself
				if name == no || strings.HasSuffix(no, "/") && strings.HasPrefix(name, no) {
					t.Errorf("%s: the simulation of a cluster links package %s, which may not import %s: %s", place, pkg, name, why)
				}
			}
		}
	}
}
