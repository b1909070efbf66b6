package httpapi

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// checkPlain holds what readPlain reads against readObject. It reports whether readPlain read it.
func checkPlain(t *testing.T, body string) bool {
	t.Helper()
	var plain, general claimRequest
	if !plain.readPlain([]byte(body)) {
		return false
	}
	var m mistakes
	readObject([]byte(body), &general, &m)
	if err := m.err(); err != nil {
		t.Errorf("%s is read, but has mistakes: %v", body, err)
	}
	if !reflect.DeepEqual(plain, general) {
		t.Errorf("%s is read as %+v, want %+v", body, plain, general)
	}
	return true
}

func TestUsualBodiesAreReadPlainly(t *testing.T) {
	for _, body := range []string{
		`{"path":"db"}`, `{}`, ` { "path" : "db/x" , "ttl" : 30 } ` + "\n",
		`{"path":"é😀","as":"","note":"a b","link":"http://x"}`,
		`{"path":"db","mode":"permits","units":2,"limit":10,"priority":0,"wait":"forever","ttl":"1m30s"}`,
		`{"path":"db","wait":"20","ttl":"0.5"}`, `{"mode":"shared","wait":0}`,
	} {
		if !checkPlain(t, body) {
			t.Errorf("%s is left to the general reader", body)
		}
	}
}

// Everything else is left to the general reader, which names the mistakes.
func TestUnusualBodiesAreNotReadPlainly(t *testing.T) {
	for _, body := range []string{
		``, `{`, `}`, `[]`, `null`, `{"path":"db"`, `{"path":"db"}}`, `{"path":"db"} x`, `{,"path":"db"}`,
		`{"path":"db",}`, `{"path":"db" "as":"x"}`, `{"path":"db","path":"db"}`, `{"Path":"db"}`, `{"path":null}`,
		`{"path":7}`, `{"path":"a\u0062"}`, "{\"path\":\"a\tb\"}", `{"ttl":030}`, `{"ttl":1.5}`, `{"ttl":1e3}`, `{"ttl":-1}`,
		`{"ttl":1x}`, `{"ttl":"x"}`, `{"ttl":"forever"}`, `{"ttl":12345678901234567890}`,
		`{"units":1.0}`, `{"mode":"none"}`, `{"targets":[]}`, `{"soft":true}`, `{"max_hold":3}`,
	} {
		if checkPlain(t, body) {
			t.Errorf("%s is read plainly", body)
		}
	}
}

// Whatever readPlain reads, readObject reads likewise, and finds no mistake.
func TestPlainBodiesAreReadAsByReflection(t *testing.T) {
	r := testmode.Rand(t)
	read := 0
	for range testmode.Pick(50_000, 2_000_000) {
		if checkPlain(t, randomBody(r)) {
			read++
		}
		if t.Failed() {
			return
		}
	}
	if read < 1000 {
		t.Errorf("only %d bodies were read plainly", read)
	}
}

func randomBody(r *rand.Rand) string {
	keys := []string{"path", "as", "note", "link", "mode", "units", "limit", "priority", "ttl", "wait", "soft", "Path", ""}
	values := []string{`"db"`, `"shared"`, `"30s"`, `"forever"`, `"1d"`, `"7"`, `"1e3"`, `"0x10"`, `"+1s"`, `"-1s"`, `""`, `0`, `30`,
		`999999999`, `1234567890`, `00`, `-0`, `1.5`, `null`, `true`, `"é"`, `"\n"`, `{}`, `[]`, `"9223372036s"`, `" 30s"`}
	var fields []string
	for range r.IntN(4) {
		space := strings.Repeat(" ", r.IntN(2))
		fields = append(fields, fmt.Sprintf("%s%q%s:%s%s", space, keys[r.IntN(len(keys))], space,
			values[r.IntN(len(values))], space))
	}
	body := []byte("{" + strings.Join(fields, ",") + "}")
	if r.IntN(4) == 0 {
		junk := "{}[]\",: \n\t\\07.eE-nulltrue"
		body[r.IntN(len(body))] = junk[r.IntN(len(junk))]
	}
	return strings.ToValidUTF8(string(body), "x") // a body that is not UTF-8 is refused before
}
