package story

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"
)

// Record writes the fields of a struct, such as a record of a snapshot, as words on one line. It
// leaves out fields that are zero. Lists stand in brackets, structs in braces.
func Record(r any) string {
	var words []string
	appendFields(&words, reflect.Indirect(reflect.ValueOf(r)))
	return strings.Join(words, " ")
}

func appendFields(words *[]string, v reflect.Value) {
	for i := range v.NumField() {
		switch field := v.Type().Field(i); {
		case v.Field(i).IsZero():
		case field.Anonymous:
			appendFields(words, v.Field(i))
		default:
			*words = append(*words, hyphenated(field.Name)+"="+valueText(v.Field(i)))
		}
	}
}

func valueText(v reflect.Value) string {
	if d, ok := v.Interface().(time.Duration); ok {
		return Duration(d)
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		text, err := m.MarshalText()
		if err != nil {
			return quote(err.Error())
		}
		return quote(string(text))
	}
	switch v.Kind() {
	case reflect.String:
		return quote(v.String())
	case reflect.Pointer:
		return valueText(v.Elem())
	case reflect.Struct:
		var words []string
		appendFields(&words, v)
		return "{" + strings.Join(words, " ") + "}"
	case reflect.Slice:
		var all []string
		for i := range v.Len() {
			all = append(all, valueText(v.Index(i)))
		}
		return "[" + strings.Join(all, " ") + "]"
	}
	return fmt.Sprint(v.Interface())
}

// hyphenated writes a Go name as words in lower case: LowestOpen as lowest-open, MaxHold as
// max-hold, ID as id.
func hyphenated(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 && !unicode.IsUpper(rune(name[i-1])) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
