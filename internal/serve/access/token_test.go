package access_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

func TestNewToken(t *testing.T) {
	seen := make(map[string]bool)
	for range 100 {
		secret, digest := access.NewToken()
		if !strings.HasPrefix(secret, "lk_") || len(secret) != 55 || seen[secret] || digest != sha256.Sum256([]byte(secret)) {
			t.Errorf("%q has digest %s", secret, digest)
		}
		seen[secret] = true
	}
}

const someDigest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func TestParseTokens(t *testing.T) {
	other := strings.Repeat("ab", 32)
	tokens, err := access.ParseTokens(strings.NewReader("# who may come in\n\n" +
		"ci " + someDigest + " 2026-11-22\n" +
		"  deploy-1@x\t" + strings.ToUpper(other) + "  2026-01-02 expires=2027-01-31 the runner in  Bonn = old  \r\n"))
	if err != nil || len(tokens) != 2 {
		t.Fatalf("%v, %v", tokens, err)
	}
	day := func(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, time.UTC) }
	if a := tokens[0]; a.Name != "ci" || a.Digest.String() != someDigest || !a.Created.Equal(day(2026, 11, 22)) ||
		!a.Expires.IsZero() || a.Note != "" {
		t.Errorf("%+v", a)
	}
	if b := tokens[1]; b.Name != "deploy-1@x" || b.Digest.String() != other || !b.Expires.Equal(day(2027, 1, 31)) ||
		b.Note != "the runner in  Bonn = old" {
		t.Errorf("%+v", b)
	}
	for line, words := range map[string]string{
		"ci":                                   "name",
		"ci " + someDigest:                     "date",
		"ci:ops " + someDigest + " 2026-11-22": "letters",
		strings.Repeat("c", 65) + " " + someDigest + " 2026-11-22":         "65 bytes",
		"ci lk_abcdefgh 2026-11-22":                                        "the secret itself",
		"ci " + someDigest[1:] + " 2026-11-22":                             "63 bytes",
		"ci " + someDigest + "00 2026-11-22":                               "66 bytes",
		"ci g" + someDigest[1:] + " 2026-11-22":                            "hexadecimal",
		"ci " + someDigest + " yesterday":                                  "created",
		"ci " + someDigest + " 2026-13-01":                                 "created",
		"ci " + someDigest + " 2026-11-22 expires=":                        "expires",
		"ci " + someDigest + " 2026-11-22 expires=2026-02-30":              "expires",
		"ci " + someDigest + " 2026-11-22 expires=2026-11-22T25:00:00Z":    "expires",
		"ci " + someDigest + " 2026-11-22 expires=2026-11-22T15:04:05":     "such as 2026-11-22T15:04:05Z",
		"ci " + someDigest + " 2026-11-22 expire=2027-01-01":               `"expire=2027-01-01" is unknown`,
		"ci " + someDigest + " 2026-11-22 admin=yes":                       "unknown",
		"ci " + someDigest + " 2026-11-22 expires=2027-01-01 a=b":          "unknown",
		"ci " + someDigest + " 2026-11-22 a\x1bnote":                       "control",
		"ci " + someDigest + " 2026-11-22 \xff":                            "UTF-8",
		"x " + someDigest + " 2026-11-22\ny " + someDigest + " 2026-11-22": "secret of another",
		strings.Repeat("x", 2000):                                          "1023 bytes",
	} {
		tokens, err := access.ParseTokens(strings.NewReader("# a comment\n" + line))
		if len(tokens) != 0 && err == nil || !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("%.80q: %v, %v; want %q", line, tokens, err, words)
		}
		if err != nil && !strings.Contains(words, "another") && !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%.80q: %v; want its line", line, err)
		}
		if err != nil && (strings.Contains(err.Error(), "abcdefgh") || len(err.Error()) > 400) {
			t.Errorf("%.80q: the message tells too much: %v", line, err)
		}
	}
	wrong := strings.Repeat("root:x:0:0:root:/root:/bin/bash\n", 40)
	if _, err := access.ParseTokens(strings.NewReader(wrong)); err == nil || strings.Count(err.Error(), "line ") != 5 ||
		!strings.HasSuffix(err.Error(), "the lines after it were not read") {
		t.Errorf("a file of something else: %v, want five lines and that there may be more", err)
	}
	if _, err := access.ParseTokens(iotest.ErrReader(errors.New("no disk"))); err == nil ||
		errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("a file that can't be read: %v", err)
	}
	var many strings.Builder
	for i := range access.MaxTokens + 1 {
		fmt.Fprintf(&many, "ci %064x 2026-11-22\n", i)
	}
	if _, err := access.ParseTokens(strings.NewReader(many.String())); !errors.Is(err, lockkeeper.ErrInvalid) ||
		!strings.Contains(err.Error(), "100000") {
		t.Errorf("too many: %v", err)
	}
}

// A token that shall last an hour does not last until the end of its day.
func TestTokenExpiresWithinADay(t *testing.T) {
	at := time.Date(2026, 11, 22, 15, 4, 5, 0, time.UTC)
	made := access.Token{Name: "ci", Created: at.Add(-time.Hour), Expires: at, Note: "a note"}
	tokens, err := access.ParseTokens(strings.NewReader(made.String()))
	if err != nil || len(tokens) != 1 || !tokens[0].Expires.Equal(at) || tokens[0].Note != "a note" {
		t.Errorf("%q: %+v (%v), want that it expires at %s", made, tokens, err, at)
	}
}

// Tokens that are parsed, written and parsed again stay the same.
func FuzzParseTokens(f *testing.F) {
	f.Add([]byte("ci " + someDigest + " 2026-11-22 expires=2027-01-31 a note\n# x\n"))
	f.Add([]byte("ci " + someDigest + " 2026-11-22 expires=2027-01-31T15:04:05.5Z a note"))
	f.Fuzz(func(t *testing.T, file []byte) {
		tokens, err := access.ParseTokens(bytes.NewReader(file))
		if err != nil {
			if !errors.Is(err, lockkeeper.ErrInvalid) {
				t.Errorf("%v", err)
			}
			return
		}
		var again strings.Builder
		for _, token := range tokens {
			again.WriteString(token.String() + "\n")
		}
		if reread, err := access.ParseTokens(strings.NewReader(again.String())); err != nil ||
			!reflect.DeepEqual(reread, tokens) {
			t.Errorf("written as %q it is %v (%v), want %v", again.String(), reread, err, tokens)
		}
	})
}
