package httpapi

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/lockkeeper/lockkeeper"
)

// keys checks the keys of a JSON object, and of the objects in it, against the
// fields of a struct. The library takes a key twice, and in any case of letters:
// then two who read the same text may read two things. So it takes null.
func keys(text []byte, into any) error {
	if !json.Valid(text) {
		var any any
		return unreadable(json.Unmarshal(text, &any))
	}
	w := keyWalk{text: text}
	if w.next() != '{' {
		return lockkeeper.Invalid("the body is no JSON object: send {…}")
	}
	return w.object("", reflect.TypeOf(into).Elem())
}

// A keyWalk goes through JSON that is known to be valid, so it looks at no more than
// it needs to find its way.
type keyWalk struct {
	text []byte
	at   int
	each func(name string, t reflect.Type, text []byte) // is shown all strings, numbers, true and false; it may be nil
}

// next passes over spaces, and returns the byte that follows.
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
func (w *keyWalk) object(within string, t reflect.Type) error {
	known := knownKeys(t)
	var seen uint64
	for w.at++; w.next() != '}'; {
		if w.text[w.at] == ',' {
			w.at++
			continue
		}
		key := w.key()
		i, ok := known.number[string(key)]
		switch {
		case !ok:
			return lockkeeper.Invalid("there is no %s: there are %s", quoted(within+string(key)), strings.Join(known.names, ", "))
		case seen&(1<<i) != 0:
			return lockkeeper.Invalid("%s%s is there twice: write it once", within, key)
		}
		seen |= 1 << i
		w.next()
		w.at++ // the colon
		if err := w.value(within, key, known.types[i]); err != nil {
			return err
		}
	}
	w.at++
	return nil
}

// value walks over what goes into type t.
func (w *keyWalk) value(within string, key []byte, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	b := w.next()
	from := w.at
	switch {
	case b == 'n':
		return lockkeeper.Invalid("%s%s is null: leave out what has no value", within, key)
	case b == '{' && t.Kind() == reflect.Struct:
		return w.object(within+string(key)+".", t)
	case b == '[' && t.Kind() == reflect.Slice:
		for w.at++; w.next() != ']'; {
			if w.text[w.at] == ',' {
				w.at++
			} else if err := w.value(within, append(slices.Clip(key), "[]"...), t.Elem()); err != nil {
				return err
			}
		}
		w.at++
	case b == '{' || b == '[':
		return lockkeeper.Invalid("%s%s is an object or a list, which does not go there", within, key)
	case b == '"':
		w.quoted()
		w.show(within, key, t, from)
	default: // a number, true or false
		for strings.IndexByte(",]} \t\r\n", w.text[w.at]) < 0 {
			w.at++
		}
		w.show(within, key, t, from)
	}
	return nil
}

// show tells each what was walked over.
func (w *keyWalk) show(within string, key []byte, t reflect.Type, from int) {
	if w.each != nil {
		w.each(within+string(key), t, w.text[from:w.at])
	}
}

// halved reports whether JSON that is valid has half of a character, such as "\ud83d"
// alone. The library takes one for U+FFFD, so that two names would be one.
func halved(text []byte) bool {
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

// escaped is the number in uXXXX, if text begins with that.
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

// known are the keys of a type, at most 64.
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

// fieldsOf are the JSON names of a struct's fields, with those of embedded ones.
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
