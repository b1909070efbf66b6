// Package cells measures and cuts text by the columns that it takes on a terminal.
package cells

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"

	"github.com/lockkeeper/lockkeeper"
)

// Clean makes text that others wrote safe to show on one line of a terminal: it escapes control
// characters, bytes that are not UTF-8, and the hidden characters of [lockkeeper.Visible]. So no
// text can move the cursor, reverse a line or imitate another name.
func Clean(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsControl(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return lockkeeper.Visible(b.String())
}

// Width is the number of columns that text takes. The text is clean.
func Width(text string) int {
	n := 0
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	if r < utf8.RuneSelf {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	if kind := width.LookupRune(r).Kind(); kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// Cut returns text with at most so many columns. Text that was cut ends with "~". The text is clean.
func Cut(text string, most int) string {
	if most <= 0 {
		return ""
	}
	n, fits := 0, 0 // columns so far; bytes that leave a column for the mark
	for i, r := range text {
		w := runeWidth(r)
		if n+w > most {
			return text[:fits] + "~"
		}
		if n += w; n <= most-1 {
			fits = i + utf8.RuneLen(r)
		}
	}
	return text
}

// Fit returns text with exactly so many columns, cut or padded with spaces. The text is clean.
func Fit(text string, columns int) string {
	text = Cut(text, columns)
	return text + strings.Repeat(" ", max(0, columns-Width(text)))
}

// Wrap returns text in lines of at most so many columns, broken at spaces where there are any. All lines but
// the first are indented. Only a character that is wider than a line makes a longer one. The text is clean.
func Wrap(text string, columns int) (lines []string) {
	indent := ""
	for {
		n, space, end := Width(indent), 0, len(text)
		for i, r := range text {
			if n += runeWidth(r); n > columns && i > 0 {
				end = i
				break
			}
			if r == ' ' && i > 0 {
				space = i
			}
		}
		if end < len(text) && text[end] != ' ' && space > 0 {
			end = space
		}
		lines = append(lines, indent+text[:end])
		if text = strings.TrimLeft(text[end:], " "); text == "" {
			return lines
		}
		if columns >= 20 {
			indent = "    "
		}
	}
}
