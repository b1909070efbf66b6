package top

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// sequences are what terminals send for keys that are no characters, after ESC.
var sequences = map[string]string{
	"[A": "up", "[B": "down", "OA": "up", "OB": "down", "[5~": "pgup", "[6~": "pgdn",
	"[H": "home", "[F": "end", "OH": "home", "OF": "end", "[1~": "home", "[4~": "end", "[7~": "home", "[8~": "end",
}

// keys splits what a terminal sent into keys. What is left is the beginning of a key; more of it is
// still to come. A single ESC is the key of that name. Unknown sequences are no keys.
func keys(text string) (list []Key, rest string) {
	for text != "" {
		if text[0] != '\x1b' {
			if !utf8.FullRuneInString(text) {
				return list, text
			}
			r, size := utf8.DecodeRuneInString(text)
			text = text[size:]
			if name := keyOf(r); name != "" {
				list = append(list, name)
			}
			continue
		}
		if len(text) == 1 {
			return append(list, "esc"), ""
		}
		if text[1] != '[' && text[1] != 'O' {
			list, text = append(list, "esc"), text[1:]
			continue
		}
		end := strings.IndexFunc(text[2:], func(r rune) bool { return r >= 0x40 && r <= 0x7e || r >= utf8.RuneSelf })
		if end < 0 {
			return list, text
		}
		if name, known := sequences[text[1:end+3]]; known {
			list = append(list, Key(name))
		}
		text = text[end+3:]
	}
	return list, ""
}

func keyOf(r rune) Key {
	switch r {
	case '\r', '\n':
		return "enter"
	case '\b', '\x7f':
		return "backspace"
	case '\x03', '\x04':
		return "ctrl+c"
	case '\x15':
		return "ctrl+u"
	case utf8.RuneError:
		return ""
	}
	if unicode.IsControl(r) {
		return ""
	}
	return Key(string(r))
}
