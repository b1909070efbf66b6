package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// grid is a table to be printed: the first row is its head.
type grid struct {
	title string
	rows  [][]string
}

// grids are everything that people read of a result.
func (r *result) grids() []grid {
	var all []grid
	for _, t := range r.Tables {
		all = append(all, t.grid())
	}
	for _, g := range []grid{r.memoryGrid(), r.benchmarkGrid(""), r.startGrid()} {
		if len(g.rows) > 1 {
			all = append(all, g)
		}
	}
	return append(all, targetGrid(judge(r)))
}

func (r *result) memoryGrid() grid {
	g := grid{
		title: "memory in the server",
		rows:  [][]string{{"peer", "claims, owner and note included", "number", "bytes each, without the path's text"}},
	}
	for _, o := range r.Memory {
		g.rows = append(g.rows, []string{o.Peer, o.What, strconv.Itoa(o.Claims), fmt.Sprintf("%.0f", o.Bytes)})
	}
	return g
}

// benchmarkGrid has the benchmarks whose names begin so.
func (r *result) benchmarkGrid(prefix string) grid {
	g := grid{title: benchmarksName, rows: [][]string{{"benchmark", "ns", "min..max"}}}
	for _, b := range r.Benchmarks {
		if !strings.HasPrefix(b.Name, prefix) {
			continue
		}
		s := spreadOf(b.Rounds)
		g.rows = append(g.rows, []string{strings.TrimPrefix(b.Name, "Benchmark"), number(s.Median), span(s)})
	}
	return g
}

func (r *result) startGrid() grid {
	g := grid{title: "start", rows: [][]string{{"program", "ms from its start to its end", "min..max"}}}
	for _, one := range r.Starts {
		s := spreadOf(one.Rounds)
		g.rows = append(g.rows, []string{one.What, number(s.Median), span(s)})
	}
	return g
}

// notes say under which circumstances it was measured.
func (r *result) notes() []string {
	m := r.Machine
	notes := []string{
		fmt.Sprintf("%s, %d cores (%s), Linux %s, %s. Clients and servers share the cores.", m.Date, m.Cores, m.CPU, m.Kernel,
			m.Go),
		fmt.Sprintf("A pair is one acquire and one release. Figures are medians of interleaved rounds, with the "+
			"smallest and the largest; x is the ratio to the reference, round by round, and what counts. Batches are of %d. In "+
			"hand-off a holder keeps it for %s.", r.Timing.Batch, r.Timing.Keep),
		fmt.Sprintf("Frames of the limits: claim %d bytes, answer %d, end %d, answer %d.", r.Sizes.Claim, r.Sizes.Claimed,
			r.Sizes.End, r.Sizes.Ended),
	}
	for _, name := range slices.Sorted(maps.Keys(r.Missing)) {
		notes = append(notes, fmt.Sprintf("Not measured: %s: %s.", name, r.Missing[name]))
	}
	for _, failure := range slices.Compact(r.failures()) {
		notes = append(notes, "Failed: "+failure+".")
	}
	return notes
}

func (t *table) grid() grid {
	others := t.others()
	g := grid{title: fmt.Sprintf("%s (reference: %s; other processes used %.2f cores, at most %.2f)", t.name(),
		t.Reference, others.Median, others.Max)}
	head := []string{"peer"}
	main := mainMetrics(t.Kind)
	for _, m := range metricsOf(t.Kind) {
		name := string(m)
		if m == allCPU {
			name += " x"
		}
		head = append(head, name)
		if slices.Contains(main, m) {
			head = append(head, "min..max", "x", "min..max")
		}
	}
	g.rows = append(g.rows, head)
	for _, r := range t.Rows {
		line := []string{r.Peer}
		if r.Failure != "" {
			line[0] += " (failed)"
		}
		for _, m := range metricsOf(t.Kind) {
			line = append(line, cells(m, r.Figures, slices.Contains(main, m))...)
		}
		g.rows = append(g.rows, line)
	}
	return g
}

// mainMetrics are those whose spread and ratio are printed.
func mainMetrics(k kind) []metric {
	if k == handoff {
		return []metric{handoffP50, handoffP99}
	}
	return []metric{pairsPerSecond}
}

func cells(m metric, figures map[metric]figure, wide bool) []string {
	f, ok := figures[m]
	switch {
	case !ok && wide:
		return []string{"-", "-", "-", "-"}
	case !ok, m == allCPU && f.Ratio == nil:
		return []string{"-"}
	case m == allCPU:
		return []string{ratio(f.Ratio.Median)}
	case !wide:
		return []string{number(f.Median)}
	}
	line := []string{number(f.Median), span(f.spread)}
	if f.Ratio == nil {
		return append(line, "-", "-")
	}
	return append(line, ratio(f.Ratio.Median), ratio(f.Ratio.Min)+".."+ratio(f.Ratio.Max))
}

func targetGrid(verdicts []verdict) grid {
	g := grid{title: "targets", rows: [][]string{{"", "what", "aim", "measured", "min..max", ""}}}
	for _, v := range verdicts {
		line := []string{v.id, v.what, v.aim, "-", "-", v.why}
		if v.measured != nil {
			line[3], line[4], line[5] = ratio(v.measured.Median), ratio(v.measured.Min)+".."+ratio(v.measured.Max), "missed"
			if v.met {
				line[5] = "met"
			}
		}
		g.rows = append(g.rows, line)
	}
	return g
}

// number has about three digits that say something.
func number(v float64) string {
	switch {
	case v >= 995_000:
		return fmt.Sprintf("%.1fM", v/1e6)
	case v >= 99_500:
		return fmt.Sprintf("%.0fk", v/1e3)
	case v >= 995:
		return fmt.Sprintf("%.1fk", v/1e3)
	case v >= 99.5:
		return fmt.Sprintf("%.0f", v)
	case v >= 9.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func ratio(v float64) string {
	switch {
	case v < 0.0995:
		return fmt.Sprintf("%.3f", v)
	case v >= 99.5:
		return fmt.Sprintf("%.0f", v)
	}
	return number(v)
}

func span(s spread) string { return number(s.Min) + ".." + number(s.Max) }

// printPlain is for the terminal.
func (r *result) printPlain(to io.Writer) error {
	for _, g := range r.grids() {
		fmt.Fprintf(to, "%s\n\n", g.title)
		w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
		for _, line := range g.rows {
			fmt.Fprintln(w, "  "+strings.Join(line, "\t"))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(to)
	}
	for _, note := range r.notes() {
		if _, err := fmt.Fprintln(to, note); err != nil {
			return err
		}
	}
	return nil
}
