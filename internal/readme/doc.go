// Package readme writes the parts of README.md that are generated from the code:
// the matrix of engines. "make generate" writes them, and a test fails when they
// are not what the code says.
package readme

import (
	"fmt"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// Matrix is the table of engines in Markdown: a column for each engine, first
// what it can do, then what it promises.
func Matrix(engines []lockkeeper.Guarantees) string {
	var b strings.Builder
	row := func(title string, cell func(lockkeeper.Guarantees) string) {
		b.WriteString("| " + title)
		for _, g := range engines {
			b.WriteString(" | " + cell(g))
		}
		b.WriteString(" |\n")
	}
	row("", func(g lockkeeper.Guarantees) string {
		return "`" + g.Name + ":`"
	})
	b.WriteString("|" + strings.Repeat(" --- |", len(engines)+1) + "\n")
	row("users may be apart by", func(g lockkeeper.Guarantees) string { return string(g.Reach) })
	row("survives", func(g lockkeeper.Guarantees) string { survives, _, _ := g.Text(); return survives })
	row("fences rise", func(g lockkeeper.Guarantees) string { _, fences, _ := g.Text(); return fences })
	row("leases end by", func(g lockkeeper.Guarantees) string { _, _, clock := g.Text(); return clock })
	row("what breaks it", func(g lockkeeper.Guarantees) string { return g.Breaks })
	for f := lockkeeper.Features(1); f <= lockkeeper.AllFeatures; f <<= 1 {
		row(f.String(), func(g lockkeeper.Guarantees) string {
			if g.Features&f != 0 {
				return "yes"
			}
			return "no"
		})
	}
	return b.String()
}

const (
	begin = "<!-- engines: written by make generate -->\n"
	end   = "<!-- /engines -->\n"
)

// replace puts the matrix between the markers of text.
func replace(text, matrix string) (string, error) {
	before, rest, ok := strings.Cut(text, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("README.md has no lines %q and %q, between which the matrix goes", begin, end)
	}
	return before + begin + "\n" + matrix + "\n" + end + after, nil
}
