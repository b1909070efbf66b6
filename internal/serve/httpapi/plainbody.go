package httpapi

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// readPlain reads the usual body of POST /v1/claims without reflection: one object whose values are
// texts without escapes, and numbers, for the keys that a single target needs. It returns false for
// everything else, such as any mistake, and q is then unspecified: readObject reads all, and names
// the mistakes.
//
//	{ "path": TEXT , "ttl": NUMBER , … }
func (q *claimRequest) readPlain(text []byte) bool {
	p := plainText{rest: text}
	if !p.token('{') {
		return false
	}
	var seen seenKeys
	for first := true; !p.token('}'); first = false {
		if !first && !p.token(',') {
			return false
		}
		key, ok := p.text()
		if !ok || !p.token(':') || !q.readField(&p, key, &seen) {
			return false
		}
	}
	p.space()
	return len(p.rest) == 0
}

// seenKeys has a bit for each key that was read.
type seenKeys uint16

// twice reports whether the key with that bit was read before.
func (k *seenKeys) twice(bit int) bool {
	before := *k
	*k |= 1 << bit
	return before&(1<<bit) != 0
}

// readField reads the value of a key. It returns false for what readObject must read.
func (q *claimRequest) readField(p *plainText, key []byte, seen *seenKeys) bool {
	switch string(key) {
	case "path":
		return !seen.twice(0) && p.string(&q.Path)
	case "as":
		return !seen.twice(1) && p.string(&q.As)
	case "note":
		return !seen.twice(2) && p.string(&q.Note)
	case "link":
		return !seen.twice(3) && p.string(&q.Link)
	case "mode":
		name, ok := p.text()
		return !seen.twice(4) && ok && q.Mode.UnmarshalText(name) == nil
	case "units":
		q.Units = new(int)
		return !seen.twice(5) && p.whole(q.Units)
	case "limit":
		q.Limit = new(int)
		return !seen.twice(6) && p.whole(q.Limit)
	case "priority":
		return !seen.twice(7) && p.whole(&q.Priority)
	case "ttl":
		q.TTL = new(durationField)
		return !seen.twice(8) && p.duration((*time.Duration)(q.TTL), false)
	case "wait":
		q.Wait = new(waitField)
		return !seen.twice(9) && p.duration((*time.Duration)(q.Wait), true)
	}
	return false
}

// plainText is the rest of a body, which is UTF-8.
type plainText struct{ rest []byte }

func (p *plainText) space() {
	for len(p.rest) > 0 {
		switch p.rest[0] {
		case ' ', '\t', '\r', '\n':
			p.rest = p.rest[1:]
		default:
			return
		}
	}
}

// token skips white space and that byte, and reports whether it was there.
func (p *plainText) token(want byte) bool {
	p.space()
	if len(p.rest) == 0 || p.rest[0] != want {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// text reads a text without escapes.
func (p *plainText) text() ([]byte, bool) {
	if !p.token('"') {
		return nil, false
	}
	for i, c := range p.rest {
		switch {
		case c == '"':
			text := p.rest[:i]
			p.rest = p.rest[i+1:]
			return text, true
		case c < ' ' || c == '\\':
			return nil, false
		}
	}
	return nil, false
}

func (p *plainText) string(to *string) bool {
	text, ok := p.text()
	*to = string(text)
	return ok
}

// plainDigits bounds the digits of a number, so that it fits into every type.
const plainDigits = 9

// digits reads 1 to plainDigits digits.
func (p *plainText) digits() ([]byte, bool) {
	n := 0
	for n < len(p.rest) && '0' <= p.rest[n] && p.rest[n] <= '9' {
		n++
	}
	digits := p.rest[:n]
	p.rest = p.rest[n:]
	return digits, 1 <= n && n <= plainDigits
}

// natural reads the digits of a whole number, without superfluous zeros.
func (p *plainText) natural() (n int, ok bool) {
	p.space()
	digits, ok := p.digits()
	if !ok || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	for _, c := range digits {
		n = 10*n + int(c-'0')
	}
	return n, true
}

// ended reports whether a number ends here.
func (p *plainText) ended() bool {
	if len(p.rest) == 0 {
		return true
	}
	switch p.rest[0] {
	case ',', '}', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

func (p *plainText) whole(to *int) (ok bool) {
	*to, ok = p.natural()
	return ok && p.ended()
}

// duration reads a whole number of seconds, or a text. With endless the text may be "forever".
func (p *plainText) duration(to *time.Duration, endless bool) bool {
	p.space()
	if len(p.rest) > 0 && p.rest[0] == '"' {
		text, ok := p.text()
		if !ok {
			return false
		}
		if endless && string(text) == "forever" {
			*to = lockkeeper.Forever
			return true
		}
		var err error
		*to, err = parseDuration("", string(text))
		return err == nil
	}
	n, ok := p.natural()
	*to = time.Duration(n) * time.Second
	return ok && p.ended()
}
