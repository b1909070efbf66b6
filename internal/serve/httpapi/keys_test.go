package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

var keyCases = map[string]string{ // JSON, and what is said of it; "" if nothing is wrong
	`{}`:                               "",
	` { "path" : "a" , "ttl" : 1e3 } `: "",
	`{"targets":[{"path":"a"},{"path":"b","units":1}]}`: "",
	`{"targets":[]}`:                 "",
	`{"note":"a \" b \\ c } ] , {"}`: "", `{"pa\u0074h":"a"}`: "", `{"soft":true,"priority":-3}`: "",
	`{"path":"a","path":"b"}`:              "path is given twice",
	`{"path":"a","pa\u0074h":"b"}`:         "path is given twice",
	`{"Path":"a"}`:                         `unknown key "Path"`,
	`{"wiat":1}`:                           `unknown key "wiat"`,
	`{"targets":[{"path":"a"},{"ttl":1}]}`: `unknown key "targets[].ttl"`,
	`{"targets":[{"path":"a","path":1}]}`:  "targets[].path is given twice",
	`{"targets":[null]}`:                   "targets[] is null",
	`{"note":null}`:                        "note is null",
	`{"note":{"a":1}}`:                     "note is an object",
	`{"note":["a"]}`:                       "note is a list",
	`{"targets":{"path":"a"}}`:             "targets is an object",
	`[]`:                                   "not a JSON object", `1`: "not a JSON object", `null`: "not a JSON object",
	`{} {}`: "not JSON", `{"path":`: "not JSON", ``: "not JSON", `{"path":NaN}`: "not JSON",
}

func TestKeys(t *testing.T) {
	for text, want := range keyCases {
		var m mistakes
		readObject([]byte(text), &claimRequest{}, &m)
		err := m.err()
		if want == "" && err != nil || want != "" && (!errors.Is(err, lockkeeper.ErrInvalid) ||
			!strings.Contains(strings.ReplaceAll(err.Error(), `\"`, `"`), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestLoneSurrogateIsRefused: of what is half a character the library makes U+FFFD, which it does
// of nothing else that is UTF-8.
func TestLoneSurrogateIsRefused(t *testing.T) {
	for text, want := range map[string]bool{
		`"a"`:                        false,
		`"\n\\ud800"`:                false,
		`"\u00e9\ufffd"`:             false,
		`"\ud83d\ude00"`:             false,
		`"\uD83D\uDE00\uD83D\uDE00"`: false,
		`"\ud83d"`:                   true,
		`"\ude00"`:                   true,
		`"\ud83dx"`:                  true,
		`"\ud83d\n"`:                 true,
		`"\ud83d\u0041"`:             true,
		`"\ud83d\ud83d\ude00"`:       true,
		`"\ud83d\ude00\ude00"`:       true, `"\\\ud83d"`: true, `"\ud83dude00"`: true,
	} {
		if got := hasLoneSurrogate([]byte(text)); got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
		var plain string
		if err := json.Unmarshal([]byte(text), &plain); err != nil ||
			strings.Contains(plain, "\ufffd") != (want || strings.Contains(text, "ufffd")) {
			t.Errorf("%s is %q, %v", text, plain, err)
		}
	}
}

// FuzzKeys: the walk goes through whatever is valid, and finds something wrong exactly
// where the library's own tokens have another key, or one twice, or the library can't
// read a value.
func FuzzKeys(f *testing.F) {
	for text := range keyCases {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got mistakes
		readObject(text, &claimRequest{}, &got)
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		var want bool
		if json.Valid(text) {
			first, err := d.Token()
			want = err == nil && first == json.Delim('{') && plainKeys(d, reflect.TypeFor[claimRequest]()) &&
				json.Unmarshal(text, new(claimRequest)) == nil && !hasLoneSurrogate(text)
		}
		if (got.err() == nil) != want {
			t.Errorf("%q: %v, and by tokens %v", text, got.list, want)
		}
	})
}

// plainKeys reports whether an object that has begun has keys of t alone, none
// twice, and no null.
func plainKeys(d *json.Decoder, t reflect.Type) bool {
	fields, seen := fieldsOf(t), map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return false
		}
		key := token.(string)
		of, ok := fields[key]
		if !ok || seen[key] || !plainValue(d, of) {
			return false
		}
		seen[key] = true
	}
	_, err := d.Token()
	return err == nil || err == io.EOF
}

func plainValue(d *json.Decoder, t reflect.Type) bool {
	token, err := d.Token()
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case err != nil || token == nil:
		return false
	case token == json.Delim('{'):
		return t.Kind() == reflect.Struct && plainKeys(d, t)
	case token == json.Delim('['):
		if t.Kind() != reflect.Slice {
			return false
		}
		for d.More() {
			if !plainValue(d, t.Elem()) {
				return false
			}
		}
		_, err := d.Token()
		return err == nil
	}
	return true
}
