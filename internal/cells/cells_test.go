package cells_test

import (
	"slices"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/cells"
)

// Clean leaves nothing that moves the cursor, changes colours or reverses text.
func TestCleanEscapes(t *testing.T) {
	for text, want := range map[string]string{
		"plain a/b":     "plain a/b",
		"\x1b[2Jgone":   `\u001b[2Jgone`,
		"two\nlines\t":  `two\u000alines\u0009`,
		"c1 \u009b2J":   `c1 \u009b2J`,
		"\u202eesrever": `\u202eesrever`,
		"a\u200bb":      `a\u200bb`,
		"bad \xff\xc3":  `bad \xff\xc3`,
		"real \ufffd":   "real \ufffd",
		"漢字 é":          "漢字 é",
	} {
		if got := cells.Clean(text); got != want {
			t.Errorf("Clean(%q) = %q, want %q", text, got, want)
		}
	}
}

// Wide characters take two columns, combining marks none; Fit always returns the width asked for.
func TestFitCountsColumns(t *testing.T) {
	for _, c := range []struct {
		text    string
		width   int
		columns int
		want    string
	}{
		{"abc", 3, 5, "abc  "},
		{"abc", 3, 3, "abc"},
		{"abcd", 4, 3, "ab~"},
		{"漢字漢", 6, 6, "漢字漢"},
		{"漢字漢", 6, 5, "漢字~"},
		{"漢字漢", 6, 4, "漢~ "},
		{"e\u0301e\u0301e\u0301", 3, 2, "e\u0301~"},
		{"😀x", 3, 3, "😀x"},
		{"abc", 3, 1, "~"},
		{"漢", 2, 1, "~"},
		{"abc", 3, 0, ""},
		{"", 0, 2, "  "},
	} {
		if got := cells.Width(c.text); got != c.width {
			t.Errorf("%q has width %d, want %d", c.text, got, c.width)
		}
		if got := cells.Fit(c.text, c.columns); got != c.want || cells.Width(got) != max(0, c.columns) {
			t.Errorf("Fit(%q, %d) = %q, want %q", c.text, c.columns, got, c.want)
		}
	}
}

func TestWrapKeepsAllText(t *testing.T) {
	for _, test := range []struct {
		text    string
		columns int
		want    []string
	}{
		{"", 10, []string{""}},
		{"ann waits", 9, []string{"ann waits"}},
		{"ann waits for bob", 9, []string{"ann waits", "for bob"}},
		{"ann waits for bob", 8, []string{"ann", "waits", "for bob"}},
		{"abcdefgh", 3, []string{"abc", "def", "gh"}},
		{"漢字漢", 4, []string{"漢字", "漢"}},
		{"漢字", 1, []string{"漢", "字"}},
		{"cleaner waits for db, held by nightly", 22, []string{"cleaner waits for db,", "    held by nightly"}},
	} {
		if got := cells.Wrap(test.text, test.columns); !slices.Equal(got, test.want) {
			t.Errorf("Wrap(%q, %d) = %q, want %q", test.text, test.columns, got, test.want)
		}
	}
}

func TestMiddleKeepsBothEnds(t *testing.T) {
	for _, c := range []struct {
		text    string
		columns int
		want    string
	}{
		{"abcdefghij", 10, "abcdefghij"},
		{"abcdefghij", 9, "abcd~ghij"},
		{"abcdefghij", 6, "ab~hij"},
		{"abcdefghij", 3, "a~j"},
		{"abcdefghij", 2, "a~"},
		{"abcdefghij", 0, ""},
		{"漢字漢字漢", 7, "漢~字漢"},
		{"漢字漢字漢", 3, "~漢"},
		{"abcdee\u0301\u0301", 4, "a~\u0065e\u0301\u0301"},
		{"abce\u0301\u0301f", 3, "a~f"},
	} {
		if got := cells.Middle(c.text, c.columns); got != c.want || cells.Width(got) > c.columns {
			t.Errorf("Middle(%q, %d) = %q, want %q", c.text, c.columns, got, c.want)
		}
	}
}

func TestShareTakesFromTheWidest(t *testing.T) {
	for _, c := range []struct {
		room          int
		widths, least []int
		want          []int
	}{
		{20, []int{5, 6, 7}, []int{0, 0, 0}, []int{5, 6, 7}},
		{20, []int{200, 6, 7}, []int{0, 0, 0}, []int{7, 6, 7}},
		{20, []int{200, 4, 100}, []int{0, 4, 0}, []int{8, 4, 8}},
		{20, []int{200, 9, 100}, []int{3, 9, 9}, []int{3, 9, 9}},
		{10, []int{200, 9}, []int{3, 9}, []int{3, 9}},
		{-5, []int{4}, []int{0}, []int{0}},
	} {
		if got := cells.Share(c.room, c.widths, c.least); !slices.Equal(got, c.want) {
			t.Errorf("Share(%d, %v, %v) = %v, want %v", c.room, c.widths, c.least, got, c.want)
		}
	}
}
