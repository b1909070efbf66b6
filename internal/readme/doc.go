// Package readme writes what documents state about the code: the matrix of engines in
// docs/engines/README.md. "make generate" writes it, and a test fails when it is not what the code
// says. Other tests compile the Go in README.md and docs/go.md.
package readme

import (
	"fmt"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// Matrix compares engines in Markdown: a table with a column for each engine, the features that
// all have and those that only some have, and for each engine what a table has no room for.
func Matrix(engines []lockkeeper.Guarantees) string {
	var b strings.Builder
	row := func(title string, cell func(lockkeeper.Guarantees) string) {
		b.WriteString("| " + title)
		for _, g := range engines {
			b.WriteString(" | " + cell(g))
		}
		b.WriteString(" |\n")
	}
	row("", func(g lockkeeper.Guarantees) string { return "`" + g.Name + ":`" })
	b.WriteString("|" + strings.Repeat(" --- |", len(engines)+1) + "\n")
	row("users may be apart by", func(g lockkeeper.Guarantees) string { return string(g.Reach) })
	row("claims survive", func(g lockkeeper.Guarantees) string { return string(g.Survives) })
	row("fences rise", func(g lockkeeper.Guarantees) string { return g.FencesRise() })
	row("leases end by", func(g lockkeeper.Guarantees) string { return string(g.Clock) })
	shared := lockkeeper.AllFeatures
	for _, g := range engines {
		shared &= g.Features
	}
	for f := lockkeeper.Features(1); f <= lockkeeper.AllFeatures; f <<= 1 {
		if shared&f != 0 {
			continue
		}
		row(f.String(), func(g lockkeeper.Guarantees) string {
			if g.Features&f != 0 {
				return "yes"
			}
			return "no"
		})
	}
	fmt.Fprintf(&b, "\nEvery engine has: %s.\n", shared)
	for _, g := range engines {
		fmt.Fprintf(&b, "\n`%s:`\n\n", g.Name)
		for _, line := range [][2]string{
			{"claims survive " + string(g.Survives), g.Notes.Survives}, {"fences rise " + g.FencesRise(), g.Notes.Fences},
			{"leases end by " + string(g.Clock), g.Notes.Clock}, {"what breaks it", g.Breaks},
			{"instead of what it lacks", g.Notes.Instead},
		} {
			if line[1] != "" {
				fmt.Fprintf(&b, "- %s: %s\n", line[0], line[1])
			}
		}
	}
	return b.String()
}

// file has the matrix.
const file = "../../docs/engines/README.md"

const (
	begin = "<!-- engines: written by make generate -->\n"
	end   = "<!-- /engines -->\n"
)

// replace puts the matrix between the markers of text.
func replace(text, matrix string) (string, error) {
	before, rest, ok := strings.Cut(text, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("%s has no lines %q and %q, between which the matrix goes", file, begin, end)
	}
	return before + begin + "\n" + matrix + "\n" + end + after, nil
}
