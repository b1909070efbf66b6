package access

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockkeeper/lockkeeper"
)

// A Token authenticates its identity. The server stores only the digest of the secret, so a reader
// of the token file can't use it. An identity may have several tokens, so that a new one can be
// distributed before the old one is withdrawn.
type Token struct {
	Name    string    // of the identity
	Digest  Digest    // SHA-256 of the secret
	Created time.Time // a date, UTC, for people
	Expires time.Time // a second: invalid from its beginning on, UTC; zero: never
	Note    string    // for people, such as the holder's name
}

// Digest is the SHA-256 of a secret. The digest of a secret of NewToken need not be kept secret.
type Digest [sha256.Size]byte

// String is the digest in hexadecimal, as the file of tokens has it.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// equal compares in constant time.
func (d Digest) equal(e Digest) bool { return subtle.ConstantTimeCompare(d[:], e[:]) == 1 }

// SecretPrefix begins every secret, so that people and secret scanners recognise one.
const SecretPrefix = "lk_"

// NewToken returns a secret of 256 random bits, and its digest. The secret can't be recovered: show
// it once to its user.
func NewToken() (secret string, digest Digest) {
	var random [32]byte
	rand.Read(random[:]) // never fails: without random numbers the program ends
	secret = SecretPrefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(random[:]))
	return secret, sha256.Sum256([]byte(secret))
}

// Limits of a token file. A larger file is refused.
const (
	MaxTokens    = 100_000
	maxTokenLine = 1024 // bytes
)

const (
	expiresField = "expires="
	expiresForm  = "2006-01-02T15:04:05Z" // UTC
)

// String is the token's line in a file of tokens, without an end of line.
func (t Token) String() string {
	line := t.Name + " " + t.Digest.String() + " " + t.Created.UTC().Format(time.DateOnly)
	if !t.Expires.IsZero() {
		line += " " + expiresField + t.Expires.UTC().Format(expiresForm)
	}
	if t.Note != "" {
		line += " " + t.Note
	}
	return line
}

func (t *Token) expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// ParseTokens reads a file of tokens. Each line has
//
//	NAME SHA256-IN-HEX CREATED [expires=TIME] [NOTE]
//
// CREATED is a date such as 2026-11-22, and TIME a time such as 2026-11-22T15:04:05Z, or a date, which
// means its beginning. A line that begins with # is a comment. If there are mistakes, one ErrInvalid
// lists the first of them with their line numbers, and no token counts.
func ParseTokens(r io.Reader) ([]Token, error) {
	var tokens []Token
	var c complaints
	const mostComplaints = 5 // a file that has no tokens is wrong in each line
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxTokenLine)
	n := 0
	for len(c.wrong) < mostComplaints && lines.Scan() {
		n++
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		t, err := parseToken(line)
		if err != nil {
			c.addf("line %d: %s", n, err)
			continue
		}
		if tokens = append(tokens, t); len(tokens) > MaxTokens {
			c.addf("line %d: %d tokens are the most that are allowed", n, MaxTokens)
			break
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		c.addf("line %d has more than %d bytes", n+1, maxTokenLine-1)
	case err != nil:
		return nil, fmt.Errorf("reading tokens: %w", err)
	}
	if len(c.wrong) == mostComplaints {
		c.addf("the lines after it were not read")
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	return tokens, checkTokens(tokens)
}

// parseToken reads one line.
func parseToken(line string) (Token, error) {
	var t Token
	name, rest := field(line)
	digest, rest := field(rest)
	created, rest := field(rest)
	if created == "" {
		return t, errors.New("a token has a name, the SHA-256 of its secret, and the date when it was made")
	}
	t.Name = name
	if err := IdentityName(name); err != nil {
		return t, errors.New(err.(*lockkeeper.Error).Detail)
	}
	if strings.HasPrefix(digest, SecretPrefix) { // and is not repeated in a log
		return t,
			errors.New("this is the secret itself instead of its SHA-256: others may have read it, so make a new token")
	}
	if n, err := hex.Decode(t.Digest[:], []byte(digest[:min(len(digest), 2*sha256.Size)])); err != nil ||
		n != sha256.Size || len(digest) != 2*sha256.Size {
		return t, fmt.Errorf("the second field has %d bytes, and is not a SHA-256 in hexadecimal, which has %d", len(digest),
			2*sha256.Size)
	}
	var err error
	if t.Created, err = parseDate("created", created); err != nil {
		return t, err
	}
	if word, after := field(rest); strings.HasPrefix(word, expiresField) {
		if t.Expires, err = parseExpiry(word[len(expiresField):]); err != nil {
			return t, err
		}
		rest = after
	}
	if word, _ := field(rest); strings.Contains(word, "=") {
		return t, fmt.Errorf("the field %q is unknown: after the date there may be %sTIME, then a note that does not "+
			"begin so", cut(word), expiresField)
	}
	t.Note = rest
	return t, t.checkNote()
}

// field splits the first word off.
func field(line string) (word, rest string) {
	end := strings.IndexFunc(line, unicode.IsSpace)
	if end < 0 {
		return line, ""
	}
	return line[:end], strings.TrimSpace(line[end:])
}

func parseDate(what, text string) (time.Time, error) {
	at, err := time.Parse(time.DateOnly, text)
	if err != nil || at.IsZero() {
		return time.Time{}, fmt.Errorf("%s %q is not a date such as 2026-11-22", what, cut(text))
	}
	return at, nil
}

// parseExpiry reads the time from which on a token is invalid: a second, or a date.
func parseExpiry(text string) (time.Time, error) {
	at, err := time.Parse(expiresForm, text)
	if err != nil {
		at, err = time.Parse(time.DateOnly, text)
	}
	at = at.Truncate(time.Second) // time.Parse accepts fractions
	if err != nil || at.IsZero() {
		return time.Time{}, fmt.Errorf("expires %q is not a time such as 2026-11-22T15:04:05Z, nor a date", cut(text))
	}
	return at, nil
}

func (t *Token) checkNote() error {
	if !utf8.ValidString(t.Note) || strings.IndexFunc(t.Note, unicode.IsControl) >= 0 {
		return fmt.Errorf("the note %q has control characters or is not UTF-8", cut(t.Note))
	}
	return nil
}

// checkTokens returns an ErrInvalid for tokens that no token file may have.
func checkTokens(tokens []Token) error {
	var c complaints
	if len(tokens) > MaxTokens {
		c.addf("%d tokens: at most %d are allowed", len(tokens), MaxTokens)
		return c.err()
	}
	of := make(map[Digest]string, len(tokens))
	for i := range tokens {
		t := &tokens[i]
		if err := IdentityName(t.Name); err != nil {
			c.addf("token %d: %s", i+1, err.(*lockkeeper.Error).Detail)
		}
		if other, twice := of[t.Digest]; twice {
			c.addf("token %d: %s has the secret of another token, of %s: every token has its own", i+1, t.Name, other)
		}
		of[t.Digest] = t.Name
	}
	return c.err()
}
