package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/lockkeeper/lockkeeper"
)

// readObject decodes a JSON object into a struct, and adds all its mistakes to m. It skips wrong
// values and decodes the rest. encoding/json accepts repeated keys, keys in any case, and null;
// readObject refuses them, because two readers could understand the same text differently.
func readObject(text []byte, into any, m *mistakes) {
	t := reflect.TypeOf(into).Elem()
	err := json.Unmarshal(text, new(json.RawMessage))
	w := keyWalk{text: text, mistakes: m}
	switch {
	case err != nil:
		err = noJSON(err)
	case w.next() != '{':
		err = lockkeeper.Invalid("the body is not a JSON object: send {…}")
	}
	if err != nil {
		m.add(err)
		m.keys = append(m.keys, knownKeys(t).names...)
		return
	}
	if hasLoneSurrogate(text) {
		m.addf("the body contains half of a surrogate pair, such as \\ud83d alone: a text was cut within a character")
	}
	w.object("", t)
	if err := json.Unmarshal(w.without(), into); err != nil && len(m.list) == 0 {
		m.addf("the body is not valid")
	}
}

// noJSON returns the error of text that is not JSON.
func noJSON(err error) error {
	var at *json.SyntaxError
	if !errors.As(err, &at) || strings.HasPrefix(at.Error(), "unexpected end") {
		return lockkeeper.Invalid("the body is not JSON: it ends before it is complete")
	}
	return lockkeeper.Invalid("the body is not JSON: byte %d is not valid", at.Offset)
}

// A keyWalk walks over valid JSON, so it checks no syntax.
type keyWalk struct {
	text     []byte
	at       int
	mistakes *mistakes
	holes    [][2]int // the ranges of wrong values
}

// without returns the text with null in place of wrong values.
func (w *keyWalk) without() []byte {
	if w.holes == nil {
		return w.text
	}
	var text []byte
	from := 0
	for _, hole := range w.holes {
		text = append(append(text, w.text[from:hole[0]]...), "null"...)
		from = hole[1]
	}
	return append(text, w.text[from:]...)
}

// wrong records a mistake in the value between that offset and the present one.
func (w *keyWalk) wrong(name string, from int, format string, args ...any) {
	w.mistakes.addf(format, args...)
	w.mistakes.keys = append(w.mistakes.keys, name)
	w.holes = append(w.holes, [2]int{from, w.at})
}

// next skips white space, and returns the next byte.
func (w *keyWalk) next() byte {
	for {
		switch b := w.text[w.at]; b {
		case ' ', '\t', '\r', '\n':
			w.at++
		default:
			return b
		}
	}
}

// object walks over an object that goes into type t.
func (w *keyWalk) object(within string, t reflect.Type) {
	known := knownKeys(t)
	var seen uint64
	for w.at++; w.next() != '}'; {
		if w.text[w.at] == ',' {
			w.at++
			continue
		}
		name := string(w.key())
		i, ok := known.number[name]
		name = within + name
		w.next()
		w.at++ // the colon
		w.next()
		from := w.at
		switch {
		case !ok:
			w.skip()
			w.wrong(name, from, "unknown key %s: allowed are %s", quoted(name), strings.Join(known.names, ", "))
		case seen&(1<<i) != 0:
			w.skip()
			w.wrong(name, from, "%s is given twice: give it once", name)
		default:
			seen |= 1 << i
			w.value(name, known.types[i])
		}
	}
	w.at++
}

// value walks over what goes into type t.
func (w *keyWalk) value(name string, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	b := w.next()
	from := w.at
	switch {
	case b == 'n':
		w.skip()
		w.wrong(name, from, "%s is null: leave out what has no value", name)
	case b == '{' && t.Kind() == reflect.Struct:
		w.object(name+".", t)
	case b == '[' && t.Kind() == reflect.Slice:
		for w.at++; w.next() != ']'; {
			if w.text[w.at] == ',' {
				w.at++
			} else {
				w.value(name+"[]", t.Elem())
			}
		}
		w.at++
	default:
		w.skip()
		if says := typeMismatch(name, t, w.text[from:w.at]); says != "" {
			w.wrong(name, from, "%s", says)
		}
	}
}

// skip skips any value.
func (w *keyWalk) skip() {
	depth := 0
	for {
		switch w.next() {
		case '{', '[':
			depth++
			w.at++
		case '}', ']':
			depth--
			w.at++
		case ',', ':':
			w.at++
		case '"':
			w.quoted()
		default: // a number, true, false or null
			for w.at < len(w.text) && strings.IndexByte(",]}: \t\r\n", w.text[w.at]) < 0 {
				w.at++
			}
		}
		if depth == 0 {
			return
		}
	}
}

// typeMismatch returns why a JSON value does not fit type t; "" if it fits.
func typeMismatch(name string, t reflect.Type, text []byte) string {
	var err error
	either := ""
	switch {
	case t == reflect.TypeFor[waitField]() && string(text) == forever:
	case t == reflect.TypeFor[waitField]():
		either = "; or \"forever\""
		fallthrough
	case t == reflect.TypeFor[durationField]():
		_, err = parseJSONDuration(name, text)
	default:
		err = json.Unmarshal(text, reflect.New(t).Interface())
	}
	var e *lockkeeper.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Detail + either
	}
	return name + " is " + kindOf(text) + ": it must be " + jsonKind(t)
}

// kindOf names the kind of a JSON value.
func kindOf(text []byte) string {
	switch text[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "text"
	case 't', 'f':
		return string(text)
	}
	return "the number " + string(text[:min(len(text), 40)])
}

// hasLoneSurrogate reports whether valid JSON contains half of a surrogate pair, such as "\ud83d"
// alone. encoding/json replaces it with U+FFFD, so two different names would become one.
func hasLoneSurrogate(text []byte) bool {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++
		first, ok := escaped(text[i:])
		if !ok || !utf16.IsSurrogate(first) {
			continue
		}
		i += len("uXXXX")
		second, ok := escaped(bytes.TrimPrefix(text[i:], []byte(`\`)))
		if !ok || text[i] != '\\' || utf16.DecodeRune(first, second) == utf8.RuneError {
			return true
		}
		i += len("uXXXX")
	}
	return false
}

// escaped returns the number in uXXXX at the beginning of text.
func escaped(text []byte) (rune, bool) {
	if len(text) < len("uXXXX") || text[0] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[1:len("uXXXX")]), 16, 16)
	return rune(n), err == nil
}

// key walks over a key, and returns it.
func (w *keyWalk) key() []byte {
	text := w.quoted()
	if slices.Contains(text, '\\') {
		var plain string
		_ = json.Unmarshal(text, &plain) // it is valid
		return []byte(plain)
	}
	return text[1 : len(text)-1]
}

// quoted walks over a string, and returns it as it is written.
func (w *keyWalk) quoted() []byte {
	from := w.at
	for w.at++; w.text[w.at] != '"'; w.at++ {
		if w.text[w.at] == '\\' {
			w.at++
		}
	}
	w.at++
	return w.text[from:w.at]
}

// known has the keys of a type, at most 64.
type known struct {
	number map[string]int
	types  []reflect.Type
	names  []string // sorted
}

var knownTypes sync.Map // of *known, by reflect.Type

func knownKeys(t reflect.Type) *known {
	if k, ok := knownTypes.Load(t); ok {
		return k.(*known)
	}
	fields := fieldsOf(t)
	k := &known{number: make(map[string]int, len(fields)), names: names(fields)}
	for i, name := range k.names {
		k.number[name] = i
		k.types = append(k.types, fields[name])
	}
	knownTypes.Store(t, k)
	return k
}

// fieldsOf returns the JSON names of a struct's fields, embedded ones included.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := make(map[string]reflect.Type, t.NumField())
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			fields[name] = f.Type
		}
	}
	return fields
}

func names(fields map[string]reflect.Type) []string {
	list := make([]string, 0, len(fields))
	for name := range fields {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}
