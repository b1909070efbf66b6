package table

import (
	"os"
	"strings"
	"testing"
)

// TestMatrix holds the picture above the type kind against the code.
func TestMatrix(t *testing.T) {
	source, err := os.ReadFile("mode.go")
	if err != nil {
		t.Fatal(err)
	}
	var drawn []string
	for line := range strings.Lines(string(source)) {
		if row, ok := strings.CutPrefix(line, "//\t"); ok {
			drawn = append(drawn, strings.TrimRight(row, " \n"))
		}
	}
	if got, want := matrix(), strings.Join(drawn, "\n"); got != want {
		t.Errorf("the code says\n%s\nthe picture in mode.go says\n%s", got, want)
	}
}

// TestMatrixIsSymmetric: who can't meet whom does not depend on who came first.
func TestMatrixIsSymmetric(t *testing.T) {
	for a := range kinds {
		for b := range kinds {
			if conflicts[a].has(b) != conflicts[b].has(a) {
				t.Errorf("%s and %s conflict one way only", a, b)
			}
		}
	}
}
