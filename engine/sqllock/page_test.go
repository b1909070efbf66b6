package sqllock

import (
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// page is the documentation of this engine.
const page = "../../docs/engines/database.md"

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// pageBlocks are the blocks of one kind in the page.
func pageBlocks(t *testing.T, kind string) (all []string) {
	t.Helper()
	for _, found := range regexp.MustCompile("(?ms)^```"+kind+
		"\n(.*?)^```$").FindAllStringSubmatch(string(readFile(t, page)), -1) {
		all = append(all, found[1])
	}
	return all
}

// pageBlock is the one block of a kind that begins so.
func pageBlock(t *testing.T, kind, begins string) string {
	t.Helper()
	for _, block := range pageBlocks(t, kind) {
		if strings.HasPrefix(block, begins) {
			return block
		}
	}
	t.Fatalf("%s has no block of %s that begins with %q", page, kind, begins)
	return ""
}

// asWritten is a text of the page for another database: the page names the tables
// and the parameters as in Postgres.
func (db database) asWritten(text string) string {
	if db.flavour == postgres {
		return text
	}
	return regexp.MustCompile(`\$\d`).ReplaceAllString(strings.ReplaceAll(text, "lockkeeper.", "lockkeeper_"), "?")
}

// scene is the situation in which the page reads the tables.
func scene(t *testing.T, e *Engine) {
	t.Helper()
	permit := lockkeeper.Target{Path: "router1/snmp", Mode: lockkeeper.ModePermits, Units: 1, Limit: 3}
	for _, who := range []struct {
		name, note string
		ttl        time.Duration
		target     lockkeeper.Target
		state      lockkeeper.State
	}{
		{"poller-1", "uptime", time.Minute, permit, lockkeeper.Held},
		{"poller-2", "uptime", time.Minute, permit, lockkeeper.Held},
		{"poller-3", "traffic", 14 * time.Second, permit, lockkeeper.Held},
		{"backup", "nightly", time.Minute, lockkeeper.Target{Path: "router1/config", Mode: lockkeeper.ModeExclusive},
			lockkeeper.Held},
		{"poller-4", "uptime", time.Minute, permit, lockkeeper.Waiting},
		{"upgrade", "version 7", time.Minute, lockkeeper.Target{Path: "router1", Mode: lockkeeper.ModeExclusive},
			lockkeeper.Waiting},
		{"map", "the port map", time.Minute, lockkeeper.Target{Path: "router2/ports", Mode: lockkeeper.ModeShared},
			lockkeeper.Held},
	} {
		label := lockkeeper.Label{As: who.name, Note: who.note}
		lease, err := e.Attach(bounded(t), lockkeeper.Session{ID: "s-" + who.name, TTL: who.ttl, Label: label}, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{who.target}, Wait: lockkeeper.Forever, Label: label}
		if st, err := e.Claim(bounded(t), lease.Key, want); err != nil || st.State != who.state {
			t.Fatalf("%s: %v, %v", who.name, st.State, err)
		}
	}
}

// Each query in the page finds what stands below it, in both databases.
func TestPageQueries(t *testing.T) {
	queries := regexp.MustCompile("(?ms)^```sql\n((?:SELECT|WITH) .*?)^```\n\n```text\n(.*?)^```$").FindAllStringSubmatch(
		string(readFile(t, page)), -1)
	if len(queries) < 5 {
		t.Fatalf("%s has %d queries with what they find", page, len(queries))
	}
	onEach(t, func(t *testing.T, url string) {
		e := openEngine(t, url)
		scene(t, e)
		for _, found := range queries {
			query, want := e.db.asWritten(found[1]), found[2]
			if got := printed(t, e.db.pool, query); likely(got) != likely(want) {
				t.Errorf("%s\nfinds\n%sand the page says\n%s", query, got, want)
			}
		}
	})
}

// printed is what a query finds, as people see it.
func printed(t *testing.T, pool *sql.DB, query string) string {
	t.Helper()
	found, err := pool.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer found.Close()
	names, err := found.Columns()
	if err != nil {
		t.Fatal(err)
	}
	all := [][]string{names}
	for found.Next() {
		row, into := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range row {
			into[i] = &row[i]
		}
		if err := found.Scan(into...); err != nil {
			t.Fatal(err)
		}
		cells := make([]string, len(names))
		for i := range row {
			cells[i] = row[i].String
		}
		all = append(all, cells)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	width := make([]int, len(names))
	for _, row := range all {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	var b strings.Builder
	for _, row := range all {
		line := ""
		for i, cell := range row {
			line += fmt.Sprintf("%-*s | ", width[i], cell)
		}
		b.WriteString(strings.TrimRight(line, "| ") + "\n")
	}
	return b.String()
}

var (
	someTime   = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.\d]*(Z|[-+][\d:]+)?`)
	someNumber = regexp.MustCompile(`\d+\.\d+`)
	aFence     = regexp.MustCompile(`\b\d{4,}\b`)
	spaces     = regexp.MustCompile(` +`)
)

// likely is a table without what differs each time: moments, seconds, fences.
func likely(table string) string {
	for _, r := range []struct {
		of   *regexp.Regexp
		with string
	}{{someTime, "TIME"}, {someNumber, "SECONDS"}, {aFence, "FENCE"}, {spaces, " "},
		{regexp.MustCompile(`(?m) *\|? *$`), ""}} {
		table = r.of.ReplaceAllString(table, r.with)
	}
	return table
}
