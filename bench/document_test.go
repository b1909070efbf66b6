package main

import (
	"os"
	"strings"
	"testing"
)

// The tables of the documentation are those of the committed run.
func TestDocumentHasTheCommittedRun(t *testing.T) {
	const file = "../docs/performance.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := readRun("run.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := fillDocument(string(text), r)
	if err != nil {
		t.Fatal(err)
	}
	if want != string(text) {
		t.Errorf("%s does not have the tables of bench/run.json: go generate, in folder bench", file)
	}
}

func TestFilledDocument(t *testing.T) {
	const text = `# Title
<!-- bench: aims G5 G16 -->
old
<!-- end -->
between
<!-- bench: peers ^(limit: mux|lk) -->
<!-- end -->
after
<!-- bench: memory -->
<!-- end -->
beyond
<!-- bench: run -->
<!-- end -->
`
	filled, err := fillDocument(text, small())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Title\n<!-- bench: aims G5 G16 -->\n\n| ", "| G5 | ", "\n\n<!-- end -->\nbetween\n",
		"| " + oursName + " | - | - | 900 (0.90) | 5.56 + 3.33 | ", "\nafter\n", "\nbeyond\n"} {
		if !strings.Contains(filled, want) {
			t.Errorf("%q is missing in\n%s", want, filled)
		}
	}
	for _, gone := range []string{"\nold\n", "| G15 |", rueidisName + " |"} {
		if strings.Contains(filled, gone) {
			t.Errorf("%q stands in\n%s", gone, filled)
		}
	}
	if again, err := fillDocument(filled, small()); again != filled || err != nil {
		t.Errorf("filled again, %v:\n%s", err, again)
	}
	cells := 0
	for line := range strings.Lines(filled) {
		switch n := strings.Count(line, "|"); {
		case !strings.HasPrefix(line, "|"):
			cells = 0
		case cells == 0:
			cells = n
		case n != cells:
			t.Errorf("a line has another number of cells: %s", line)
		}
	}
}

func TestBadDocuments(t *testing.T) {
	for text, want := range map[string]string{
		"no part":                                 "no part",
		"<!-- bench: aims -->\nwithout end\n":     "no part",
		"<!-- bench: weather -->\n<!-- end -->\n": "weather",
		"<!-- bench: peers ( -->\n<!-- end -->\n": "peers",
	} {
		if _, err := fillDocument(text, small()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}

// A part of each kind can be written from a run that has nothing.
func TestPartsOfAnEmptyRun(t *testing.T) {
	for kind, write := range parts {
		if _, err := write(&result{}, ""); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
