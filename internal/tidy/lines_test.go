package tidy

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const mostColumns = 120

// How many lines may be too long today: of code, and those with a text between backquotes. The
// numbers may only be lowered.
const (
	longLines = 0
	rawLines  = 5
)

// TestLineLength counts a tab as one column. A line that a text between backquotes makes too long
// is only counted: its breaks may have a meaning.
func TestLineLength(t *testing.T) {
	tree := loadTree(t)
	var long, raw []string
	for _, f := range tree.files {
		if f.generated {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, f.name))
		if err != nil {
			t.Fatal(err)
		}
		inRaw := linesOfRawStrings(tree, f)
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			columns := utf8.RuneCountInString(strings.TrimRight(line, "\r\n"))
			switch {
			case columns <= mostColumns:
			case inRaw[number]:
				raw = append(raw, f.at(number))
			default:
				long = append(long, f.at(number))
			}
		}
	}
	if len(long) > longLines {
		t.Errorf("%d lines have more than %d columns, at most %d may: break the new one of\n%s", len(long), mostColumns,
			longLines, strings.Join(long, "\n"))
	}
	if len(raw) > rawLines {
		t.Errorf("%d lines have texts between backquotes that go beyond column %d, at most %d may: break the new one of\n%s",
			len(raw), mostColumns, rawLines, strings.Join(raw, "\n"))
	}
}

// linesOfRawStrings returns the lines of f that have a part of a text between backquotes.
func linesOfRawStrings(tree *tree, f *goFile) map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && lit.Value[0] == '`' {
			for line := tree.line(lit.Pos()); line <= tree.line(lit.End()); line++ {
				lines[line] = true
			}
		}
		return true
	})
	return lines
}
