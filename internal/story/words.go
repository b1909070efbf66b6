package story

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// word is one word of a line: bare, or key=text. A bare word may end a target
// with a comma.
type word struct {
	key   string
	text  string
	comma bool
}

// split parts a line into words.
func split(line string) ([]word, error) {
	var words []word
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			return words, nil
		}
		w, rest, err := nextWord(line)
		if err != nil {
			return nil, err
		}
		words = append(words, w)
		line = rest
	}
}

func nextWord(line string) (w word, rest string, err error) {
	if line[0] != '"' {
		end := strings.IndexAny(line, " \t=")
		if end > 0 && line[end] == '=' {
			w.key = line[:end]
			w.text, rest, err = value(line[end+1:])
			return w, rest, err
		}
		if end == 0 {
			return word{}, "", fmt.Errorf("nothing stands before the = in %q", line)
		}
	}
	w.text, rest, err = value(line)
	if err != nil {
		return word{}, "", err
	}
	if text, ok := strings.CutSuffix(w.text, ","); ok && line[0] != '"' {
		w.text, w.comma = text, true
	}
	if after, ok := strings.CutPrefix(rest, ","); ok {
		rest, w.comma = after, true
	}
	return w, rest, nil
}

// value reads quoted text, or text up to the next space.
func value(line string) (text, rest string, err error) {
	if strings.HasPrefix(line, `"`) {
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return "", "", fmt.Errorf("a quote is not closed in %q", line)
		}
		text, err = strconv.Unquote(quoted)
		return text, line[len(quoted):], err
	}
	end := strings.IndexAny(line, " \t")
	if end < 0 {
		end = len(line)
	}
	return line[:end], line[end:], nil
}

// quote writes s as one word, in quotes if it needs them.
func quote(s string) string {
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, special) {
		return strconv.Quote(s)
	}
	return s
}

func special(r rune) bool {
	return strings.ContainsRune(`",=\#`, r) || unicode.IsSpace(r) || !unicode.IsPrint(r)
}
