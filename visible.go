package lockkeeper

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// hidden reports whether r is invisible and changes how text looks: bidirectional
// controls, zero-width characters and the like (Unicode category Cf), line and
// paragraph separators (Zl, Zp). Such characters can make one name look like another,
// so paths and names refuse them. Notes may contain them, because some languages and
// emoji need them, and every output escapes them.
func hidden(r rune) bool {
	return r >= 0xAD && unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

// isPlain reports whether s has only printable ASCII characters, as most texts do. Of these, none is
// hidden, a control character or not UTF-8.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Visible returns s with every hidden character (Unicode categories Cf, Zl and Zp)
// escaped, such as \u202e. Use it to show notes that others wrote, so that their text
// can't look like something else.
func Visible(s string) string {
	i := strings.IndexFunc(s, hidden)
	if i < 0 {
		return s
	}
	return s[:i] + string(AppendVisible(nil, []byte(s[i:])))
}

// AppendVisible appends text to b as [Visible] shows it. The escapes are those of
// JSON, so JSON stays JSON and means the same.
func AppendVisible(b, text []byte) []byte {
	for len(text) > 0 {
		i := bytes.IndexFunc(text, hidden)
		if i < 0 {
			break
		}
		b = append(b, text[:i]...)
		r, size := utf8.DecodeRune(text[i:])
		if r > 0xFFFF {
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		} else {
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		text = text[i+size:]
	}
	return append(b, text...)
}
