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

// Middle returns text with at most so many columns. Text that was cut has "~" in its middle, since the ends of
// a path say more than what lies between. The text is clean.
func Middle(text string, most int) string {
	if Width(text) <= most || most < 3 {
		return Cut(text, most)
	}
	n, begin := 0, 0 // columns and bytes before the mark
	for i, r := range text {
		if n += runeWidth(r); n > (most-1)/2 {
			break
		}
		begin = i + utf8.RuneLen(r)
	}
	n = Width(text[:begin]) + 1
	end := len(text)
	for end > begin {
		r, size := utf8.DecodeLastRuneInString(text[:end])
		if n += runeWidth(r); n > most {
			break
		}
		end -= size
	}
	for end < len(text) { // a mark belongs to the character before it, which is gone
		r, size := utf8.DecodeRuneInString(text[end:])
		if runeWidth(r) > 0 {
			break
		}
		end += size
	}
	return text[:begin] + "~" + text[end:]
}

// Share divides room among texts of these widths: each gets what it needs if all fit, and otherwise the widest
// give way first, none below its least. If these are more than room, so is the result.
func Share(room int, widths, least []int) []int {
	shares, total := make([]int, len(widths)), 0
	for i, width := range widths {
		shares[i] = min(width, max(room, least[i]))
		total += shares[i]
	}
	for ; total > room; total-- {
		widest := -1
		for i, share := range shares {
			if share > least[i] && (widest < 0 || share > shares[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		shares[widest]--
	}
	return shares
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
