package tidy

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// house is the direction of imports: a package may import those packages of this
// module that its line names, and of others' modules those that it names. Every
// package needs a line. Tests may import more, since nobody imports them.
//
// Engines never import each other. Only engine/all knows them all.
var house = []room{
	// package            of this module                      of others
	{".", "internal/roundtrip internal/deadlines", "golang.org/x/sys"},
	{"table", ".", ""},
	{"internal/keeper", ". table internal/watching internal/attached", ""},
	{"history", ".", "github.com/anishathalye/porcupine"},
	{"enginetest", ". history internal/testmode", ""},
	{"grab", ". internal/roundtrip internal/solo", ""},
	{"internal/solo", ".", ""}, // a session with one claim, used by many processes
	{"internal/duration", "", ""},
	{"internal/supervise", ". internal/duration", "golang.org/x/sys golang.org/x/term"},

	{"engine/memlock", ". internal/keeper", ""},
	{"engine/disklock", ". table internal/dbfolder internal/keeper internal/record internal/story", "golang.org/x/sys"},
	{"engine/sqlitelock", ". table internal/rows internal/watching internal/migrations internal/calls " +
		"internal/attached",
		"modernc.org/sqlite github.com/fsnotify/fsnotify golang.org/x/sys"},
	{"engine/sqllock", ". table internal/rows internal/watching internal/migrations internal/calls internal/attached",
		"github.com/jackc/pgx/v5 github.com/go-sql-driver/mysql"},
	{"engine/remote", ". internal/attached internal/roundtrip internal/serve/wire", ""},
	{"engine/redlock", ". internal/attached internal/watching engine/redlock/internal/link " +
		"engine/redlock/internal/quorum engine/redlock/internal/redislink engine/redlock/internal/redisconn " +
		"engine/redlock/internal/membership", "github.com/redis/go-redis/v9"},
	{"engine/redlock/internal/link", "engine/redlock/internal/quorum", ""},     // what carries requests
	{"engine/redlock/internal/quorum", ".", ""},                                // pure step functions
	{"engine/redlock/internal/script", ". engine/redlock/internal/quorum", ""}, // the Lua scripts of a server
	{"engine/redlock/internal/redisconn", "", "github.com/redis/go-redis/v9"},  // reaches a Redis server
	{"engine/redlock/internal/membership", "", ""},                             // which servers belong to a set
	{"engine/redlock/internal/redislink", "engine/redlock/internal/link engine/redlock/internal/quorum " +
		"engine/redlock/internal/script engine/redlock/internal/membership engine/redlock/internal/redisconn", ""},
	// servers in memory, for tests
	{"engine/redlock/internal/memory", "engine/redlock/internal/link engine/redlock/internal/quorum", ""},
	{"engine/quorumlock/internal/voters", "", ""}, // which nodes of a cluster vote, and which leads
	// one node of a cluster: a table behind a Raft log
	{"engine/quorumlock/internal/replica", ". table internal/record engine/quorumlock/internal/voters",
		"go.etcd.io/raft/v3 google.golang.org/protobuf"},
	// how a node joins a cluster: certificates, tokens, the exchange
	{"engine/quorumlock/internal/join", ". engine/quorumlock/internal/voters internal/pki internal/duration " +
		"internal/serve/access internal/serve/limits internal/serve/wire", ""},
	// messages between the nodes of a cluster
	{"engine/quorumlock/internal/peers", ". engine/quorumlock/internal/replica internal/serve/limits internal/serve/wire",
		"go.etcd.io/raft/v3 google.golang.org/protobuf"},
	{"engine/quorumlock/internal/node", ". table internal/keeper internal/attached internal/roundtrip " +
		"engine/quorumlock/internal/replica " +
		"engine/quorumlock/internal/voters", ""}, // runs such a node
	// what identities may do in a cluster, decided by its leader
	{"engine/quorumlock/internal/rights", ". table engine/quorumlock/internal/replica internal/serve/access " +
		"internal/serve/limits", ""},
	{"engine/quorumlock", ". table engine/quorumlock/internal/node engine/quorumlock/internal/replica " +
		"engine/quorumlock/internal/voters engine/quorumlock/internal/join engine/quorumlock/internal/peers " +
		"engine/quorumlock/internal/storage engine/quorumlock/internal/founding engine/quorumlock/internal/rights " +
		"internal/serve/access internal/serve/limits", ""},
	// what a node of a cluster has on its disk
	{"engine/quorumlock/internal/storage", ". internal/dbfolder engine/quorumlock/internal/replica",
		"go.etcd.io/raft/v3 google.golang.org/protobuf"},
	{"engine/all", "engine/memlock engine/disklock engine/sqlitelock engine/sqllock engine/remote engine/redlock " +
		"engine/quorumlock", ""},
	// the log of the first node of a cluster
	{"engine/quorumlock/internal/founding", "table engine/quorumlock/internal/replica engine/quorumlock/internal/storage",
		""},

	{"internal/serve/wire", ".", "google.golang.org/protobuf github.com/planetscale/vtprotobuf"},
	{"internal/serve/limits", ". internal/roundtrip", "golang.org/x/sync"},
	{"internal/load", "", ""}, // load generator and histogram of lk bench and of bench
	{"internal/pki", ". internal/duration internal/serve/access", "golang.org/x/sys"},
	{"internal/serve/access", ". internal/duration internal/serve/limits", ""},
	{"internal/serve/control", ".", ""}, // operators on the machine of a server
	{"internal/gctune", "", ""},         // the garbage collector of a server
	{"internal/serve/server", ". internal/attached internal/serve/wire internal/serve/access internal/serve/limits", ""},
	{"internal/serve/httpapi", ". internal/roundtrip internal/serve/access internal/serve/limits " +
		"internal/serve/page grab " +
		"internal/duration internal/listing internal/solo", ""},
	{"internal/serve/page", ".", ""}, // the files of the page, and browsers that logged in
	{"internal/serve/observe", ". internal/serve/access internal/serve/exposition", ""},
	{"internal/serve/exposition", "", "golang.org/x/sys"}, // metrics as Prometheus reads them
	{"tracing", ".", "go.opentelemetry.io/otel"},
	{"internal/otlp", ". tracing", "go.opentelemetry.io/otel go.opentelemetry.io/proto google.golang.org/protobuf"},
	{"internal/listing", ".", ""},
	{"internal/top", ". internal/cells internal/duration internal/listing", "golang.org/x/term"},
	{"internal/cells", ".", "golang.org/x/text"}, // text in the columns of a terminal
	{"semaphore", "", ""}, // the standard library alone
	{"fence", "", ""},     // likewise

	{"cmd/lk", ". engine/all engine/disklock engine/quorumlock engine/remote engine/sqlitelock grab " +
		"internal/serve/server internal/serve/control " +
		"internal/serve/access internal/serve/limits internal/serve/httpapi internal/serve/observe tracing internal/otlp " +
		"internal/duration internal/listing internal/cells internal/supervise internal/gctune internal/pki internal/load " +
		"internal/roundtrip internal/top",
		"go.yaml.in/yaml/v3 github.com/spf13/cobra github.com/spf13/pflag " +
			"golang.org/x/sys golang.org/x/term"},

	{"internal/dbfolder", ".", "modernc.org/sqlite golang.org/x/sys"}, // a database that one process has for itself
	{"internal/record", ". table", ""},                                // commands and snapshots as bytes
	{"internal/rows", ". table", ""},                                  // records as columns of a database
	{"internal/attached", ".", ""},                                    // sessions that are attached through a process
	{"internal/deadlines", "", ""},                                    // when a client renews, and when its holds are over
	{"internal/roundtrip", "", ""},                                    // the context of one call of an engine
	{"internal/calls", ".", ""},                                       // calls that share a commit
	{"internal/migrations", "", ""},                                   // brings tables of databases up to date
	// watchers: whom a change concerns, reads for them, what they have received
	{"internal/watching", ".", ""},
	{"examples/transactions", ".", ""}, // runs on every engine
	{"examples/priorities", ".", ""},   // measures starvation
	{"examples/drain", ". engine/all", ""},

	{"internal/model", ". table", ""},                   // the rules a second time, slow and obvious
	{"internal/story", ". table internal/duration", ""}, // commands and tables as text
	{"semaphore/internal/interleave", "", ""},           // small programs under every schedule
	{"internal/badnet", "", "golang.org/x/sys"},         // bad networks, for tests
	{"internal/testca", "", ""},                         // certificates, for tests
	{"internal/stress", ". history", ""},                // random load, recorded and judged
	{"internal/soak", "", ""},                           // whether processes grow under a long load
	{"internal/mutants", "", ""},                        // plants bugs and sees that tests find them
	{"internal/roles", "", ""},                          // other processes, for tests
	{"internal/testdb", "", "github.com/jackc/pgx/v5 github.com/go-sql-driver/mysql golang.org/x/sys"},
	{"internal/testmode", "", ""}, // the flags -long and -seed of all tests
	{"internal/tidy", "", ""},
	{"internal/readme", ".", ""},
	{"internal/rawwire", ". internal/serve/wire", ""}, // a client that says what a test wants
	{"internal/neighbours", "", ""},                   // what one identity costs another
}

type room struct{ pkg, ours, others string }

func TestImportDirection(t *testing.T) {
	tree := loadTree(t)
	for pkg, files := range tree.packages() {
		if files[0].nested {
			continue // its go.mod says what it imports, and nothing of this module can import it
		}
		i := slices.IndexFunc(house, func(r room) bool { return r.pkg == pkg })
		if i < 0 {
			t.Errorf("package %s is in no line of the import table: add it to house in internal/tidy/imports_test.go, with "+
				"what it may import, and to ARCHITECTURE.md", pkg)
			continue
		}
		var used []string
		for _, f := range files {
			for _, spec := range f.syntax.Imports {
				if f.test {
					continue
				}
				name, _ := strconv.Unquote(spec.Path.Value)
				permission, allowed := house[i].permission(name)
				if used = append(used, permission); !allowed {
					t.Errorf("%s: package %s may not import %s: move the code to where that is allowed, or, if the direction is "+
						"right, allow it in house in internal/tidy/imports_test.go",
						tree.at(spec.Pos()), pkg, name)
				}
			}
		}
		for _, permission := range slices.Concat(strings.Fields(house[i].ours), strings.Fields(house[i].others)) {
			if !slices.Contains(used, permission) {
				t.Errorf("package %s does not import %s: take that out of its line of the import table", pkg, permission)
			}
		}
	}
}

// permission returns the word of the line that allows an import; "" for the standard library.
func (r room) permission(name string) (word string, allowed bool) {
	first, _, _ := strings.Cut(name, "/")
	if !strings.Contains(first, ".") {
		return "", true // the standard library
	}
	if name == module || strings.HasPrefix(name, module+"/") {
		ours := strings.TrimPrefix(strings.TrimPrefix(name, module), "/")
		if ours == "" {
			ours = "."
		}
		return ours, slices.Contains(strings.Fields(r.ours), ours)
	}
	for _, prefix := range strings.Fields(r.others) {
		if name == prefix || strings.HasPrefix(name, prefix+"/") {
			return prefix, true
		}
	}
	return "", false
}

// engineOf returns the package of the engine in whose folder pkg is: engine/NAME.
func engineOf(pkg string) string {
	parts := strings.Split(pkg, "/")
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// The table itself must have the direction that it is there to hold.
func TestImportTable(t *testing.T) {
	line := map[string]room{}
	for _, r := range house {
		if _, twice := line[r.pkg]; twice {
			t.Errorf("%s has two lines in the import table: keep one", r.pkg)
		}
		line[r.pkg] = r
	}
	packages := loadTree(t).packages()
	for _, r := range house {
		if _, exists := packages[r.pkg]; !exists {
			t.Errorf("the import table has a line for %s, and there is no such package: remove the line", r.pkg)
		}
		for _, other := range strings.Fields(r.ours) {
			if _, known := line[other]; !known {
				t.Errorf("%s may import %s, which has no line of its own: add one", r.pkg, other)
			}
			own := strings.HasPrefix(other, engineOf(r.pkg)+"/internal/")
			if strings.HasPrefix(r.pkg, "engine/") && r.pkg != "engine/all" && strings.HasPrefix(other, "engine") && !own {
				t.Errorf("%s may import %s: engines never import each other; put what they share under internal", r.pkg, other)
			}
		}
	}
	for _, pkg := range []string{".", "table", "internal/keeper", "engine/memlock", "semaphore"} {
		if others := line[pkg].others; others != "" && others != "golang.org/x/sys" {
			t.Errorf("%s may import %s: it keeps to the standard library and golang.org/x/sys", pkg, others)
		}
	}
}
