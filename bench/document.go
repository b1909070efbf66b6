package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A document has parts that are written from a run:
//
//	<!-- bench: KIND ARGUMENT -->
//	... the table ...
//	<!-- end -->
//
// parts says which kinds there are.
var markedPart = regexp.MustCompile(`(?s)<!-- bench: ([a-z]+)( [^\n]*?)? -->\n.*?<!-- end -->`)

// errNoParts reports a document without a part to write.
var errNoParts = errors.New("no part begins with <!-- bench: KIND --> and ends with <!-- end -->")

// parts are the kinds of parts, and what each makes of a run and the argument.
var parts = map[string]func(r *result, argument string) (string, error){
	// under which circumstances the run took place
	"run": func(r *result, _ string) (string, error) { return "- " + strings.Join(r.notes(), "\n- ") + "\n", nil },
	// how busy the machine was with others
	"load": func(r *result, _ string) (string, error) { return r.loadGrid().markdown(), nil },
	// the aims of these ids, or all
	"aims": func(r *result, ids string) (string, error) { return r.aimsGrid(strings.Fields(ids)).markdown(), nil },
	// the peers whose names match: distinct paths, one path and hand-off, a line for each
	"peers": func(r *result, names string) (string, error) { return withNames(names, r.peersGrid) },
	// the same in batches
	"batches":    func(r *result, names string) (string, error) { return withNames(names, r.batchesGrid) },
	"memory":     func(r *result, _ string) (string, error) { return r.memoryGrid().markdown(), nil },
	"starts":     func(r *result, _ string) (string, error) { return r.startGrid().markdown(), nil },
	"benchmarks": func(r *result, prefix string) (string, error) { return r.benchmarkGrid(prefix).markdown(), nil },
}

// fillDocument returns the document with its parts written from the run.
func fillDocument(text string, r *result) (string, error) {
	if !markedPart.MatchString(text) {
		return "", errNoParts
	}
	var failed error
	filled := markedPart.ReplaceAllStringFunc(text, func(part string) string {
		words := markedPart.FindStringSubmatch(part)
		write := parts[words[1]]
		if write == nil {
			failed = fmt.Errorf("%q is no kind of part", words[1])
			return part
		}
		table, err := write(r, strings.TrimSpace(words[2]))
		if err != nil {
			failed = fmt.Errorf("part %q: %w", words[1], err)
		}
		begin, _, _ := strings.Cut(part, "\n")
		return begin + "\n\n" + table + "\n<!-- end -->"
	})
	return filled, failed
}

func withNames(names string, make func(*regexp.Regexp) grid) (string, error) {
	compiled, err := regexp.Compile(names)
	if err != nil {
		return "", err
	}
	return make(compiled).markdown(), nil
}

// markdown is the grid without its title.
func (g grid) markdown() string {
	var text strings.Builder
	for i, line := range g.rows {
		fmt.Fprintf(&text, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			fmt.Fprintf(&text, "|%s\n", strings.Repeat(" --- |", len(line)))
		}
	}
	return text.String()
}

// aimsGrid has the targets of these ids, or all.
func (r *result) aimsGrid(ids []string) grid {
	var chosen []verdict
	for _, v := range judge(r) {
		if len(ids) == 0 || slices.Contains(ids, v.id) {
			chosen = append(chosen, v)
		}
	}
	return targetGrid(chosen)
}

func (r *result) loadGrid() grid {
	g := grid{
		rows: [][]string{{"workload", "peers", "rounds", "measured at", "cores that other processes used", "at most"}},
	}
	for _, t := range r.Tables {
		others := t.others()
		g.rows = append(g.rows, []string{t.name(), strconv.Itoa(len(t.Rows)), t.rounds(), t.Date, number(others.Median),
			number(others.Max)})
	}
	return g
}

// rounds is how many rounds there were, and how long each was.
func (t *table) rounds() string {
	var seconds []float64
	most := 0
	for _, row := range t.Rows {
		most = max(most, len(row.Rounds))
		for _, s := range row.Rounds {
			seconds = append(seconds, s.Elapsed.Seconds())
		}
	}
	return fmt.Sprintf("%d of %.2f s", most, spreadOf(seconds).Median)
}

// column is a column of a table that has a line for each peer.
type column struct {
	name    string
	kind    kind
	clients int
	show    func(f map[metric]figure) string
}

// shows prints one metric.
func shows(m metric) func(map[metric]figure) string {
	return func(f map[metric]figure) string { return cells(m, f, false)[0] }
}

// showsPairs prints pairs a second and the ratio to the reference.
func showsPairs(f map[metric]figure) string {
	pairs, ok := f[pairsPerSecond]
	switch {
	case !ok:
		return "-"
	case pairs.Ratio == nil:
		return number(pairs.Median)
	}
	return fmt.Sprintf("%s (%s)", number(pairs.Median), ratio(pairs.Ratio.Median))
}

// showsCPU prints processor time of clients and of servers.
func showsCPU(f map[metric]figure) string {
	if _, ok := f[serverCPU]; !ok {
		return shows(clientCPU)(f)
	}
	return shows(clientCPU)(f) + " + " + shows(serverCPU)(f)
}

var peersColumns = []column{
	{"1 client", distinct, 1, showsPairs},
	{"16", distinct, 16, showsPairs},
	{"128", distinct, 128, showsPairs},
	{"µs of processor a pair at 128, clients + servers", distinct, 128, showsCPU},
	{"one path, 128", contended, 128, showsPairs},
	{"Jain", contended, 128, shows(fairness)},
	{"hand-off p50, µs", handoff, 128, shows(handoffP50)},
	{"p99", handoff, 128, shows(handoffP99)},
}

var batchesColumns = []column{
	{"1 client", batches, 1, showsPairs},
	{"16", batches, 16, showsPairs},
	{"128", batches, 128, showsPairs},
	{"µs of processor a pair at 128, clients + servers", batches, 128, showsCPU},
}

func (r *result) peersGrid(names *regexp.Regexp) grid   { return r.columnsGrid(names, peersColumns) }
func (r *result) batchesGrid(names *regexp.Regexp) grid { return r.columnsGrid(names, batchesColumns) }

// columnsGrid has a line for each peer that has a figure in one of the columns, in the order of peers.
func (r *result) columnsGrid(names *regexp.Regexp, columns []column) grid {
	g := grid{rows: [][]string{{"pairs a second (beside the reference)"}}}
	for _, c := range columns {
		g.rows[0] = append(g.rows[0], c.name)
	}
	for _, p := range peers(r.Sizes) {
		name, known := p.about().name, false
		if !names.MatchString(name) {
			continue
		}
		line := []string{name}
		for _, c := range columns {
			cell := "-"
			for _, t := range r.tables(workload{Kind: c.kind, Clients: c.clients}) {
				if row := t.row(name); row != nil && row.Failure == "" {
					cell, known = c.show(row.Figures), true
					break
				}
			}
			line = append(line, cell)
		}
		if known {
			g.rows = append(g.rows, line)
		}
	}
	return g
}
