package lockkeeper

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// hidden reports whether r is a character that is not seen and changes what is:
// bidirectional controls, zero-width characters and the like (Unicode category
// Cf), line and paragraph separators (Zl, Zp). With such characters one name can
// be made to look like another, so paths and names refuse them. Notes may have
// them, as other languages and emoji need some, and every output escapes them.
func hidden(r rune) bool {
	return r >= 0xAD && unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

// Visible returns s with every hidden character (categories Cf, Zl and Zp of Unicode)
// written as an escape such as \u202e. It is for showing the notes of others: text
// that they wrote can't pass for something else.
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
