package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
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
		inRaw := linesOfRawStrings(tree, f)
		for _, number := range longLinesOf(t, f.name) {
			if inRaw[number] {
				raw = append(raw, f.at(number))
			} else {
				long = append(long, f.at(number))
			}
		}
	}
	scripts := 0
	for _, name := range tree.all {
		if path.Ext(name) == ".lua" {
			scripts++
			for _, number := range longLinesOf(t, name) {
				long = append(long, fmt.Sprintf("%s:%d", name, number))
			}
		}
	}
	if scripts == 0 {
		t.Error("no .lua file is found")
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

// longLinesOf returns the numbers of the lines of a file that are too long.
func longLinesOf(t *testing.T, name string) (numbers []int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		if number++; utf8.RuneCountInString(strings.TrimRight(line, "\r\n")) > mostColumns {
			numbers = append(numbers, number)
		}
	}
	return numbers
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
