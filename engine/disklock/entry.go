package disklock

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// An entry of the journal is one command as JSON, which people can read. It is
// written by hand, under the keeper's mutex, since encoding/json would take some
// ten times as long; decode.go reads it with encoding/json. Durations are
// nanoseconds, and zeros are left out, so what is read is what was written.

// appendCommand appends c to b. It writes what c's Op looks at and nothing else.
func appendCommand(b []byte, c *table.Command) []byte {
	b = append(b, `{"at_ns":`...)
	b = strconv.AppendInt(b, int64(c.At), 10)
	b = append(b, `,"op":"`...)
	b = append(b, c.Op.String()...)
	b = append(b, '"')
	switch c.Op {
	case table.Attach:
		b = appendSession(append(b, `,"session":{`...), &c.Session)
	case table.Renew, table.Gone:
		b = appendKey(b, c.Key)
	case table.Pass:
		if c.Key != (lockkeeper.Key{}) {
			b = appendKey(b, c.Key)
		}
	case table.Claim:
		b = appendWant(append(appendKey(b, c.Key), `,"want":{`...), &c.Want)
	case table.End:
		b = appendEnding(append(appendKey(b, c.Key), `,"end":{`...), &c.Ending)
	}
	return append(b, '}')
}

func appendKey(b []byte, k lockkeeper.Key) []byte {
	b = appendText(append(b, `,"by":`...), k.Session)
	b = appendUint(b, `,"epoch":`, k.Epoch)
	b = appendUint(b, `,"answered":`, k.LowestOpen)
	return appendUint(b, `,"heard":`, k.Acked)
}

func appendSession(b []byte, s *lockkeeper.Session) []byte {
	b = appendText(append(b, `"id":`...), s.ID)
	b = appendDuration(b, `,"ttl_ns":`, s.TTL)
	b = appendUint(b, `,"follows":`, s.Epoch)
	if len(s.Named) > 0 {
		b = append(b, `,"named":`...)
		for i, id := range s.Named {
			b = strconv.AppendUint(append(b, separator(i)), id, 10)
		}
		b = append(b, ']')
	}
	if len(s.Lapsed) > 0 {
		b = append(b, `,"lapsed":`...)
		for i := range s.Lapsed {
			b = appendLapse(append(b, separator(i)), &s.Lapsed[i])
		}
		b = append(b, ']')
	}
	if s.Outlive {
		b = append(b, `,"outlive":true`...)
	}
	return append(appendLabel(b, &s.Label), '}')
}

// separator stands before element i of an array.
func separator(i int) byte {
	if i == 0 {
		return '['
	}
	return ','
}

func appendWant(b []byte, w *lockkeeper.Want) []byte {
	b = append(b, `"id":`...)
	b = strconv.AppendUint(b, w.ID, 10)
	b = appendUint(b, `,"revision":`, w.Revision)
	if w.Inside != (lockkeeper.Ref{}) {
		b = appendRef(append(b, `,"inside":`...), w.Inside)
	}
	b = append(b, `,"targets":`...)
	for i := range w.Targets {
		b = appendTarget(append(b, separator(i)), &w.Targets[i])
	}
	if len(w.Targets) == 0 {
		b = append(b, '[')
	}
	b = append(b, ']')
	b = appendInt(b, `,"priority":`, int64(w.Priority))
	b = appendDuration(b, `,"wait_ns":`, w.Wait)
	b = appendInt(b, `,"manners":`, int64(w.WriterPolicy))
	b = appendDuration(b, `,"quiet_ns":`, w.Quiet)
	b = appendInt(b, `,"steal":`, int64(w.Steal))
	b = appendDuration(b, `,"after_ns":`, w.After)
	b = appendDuration(b, `,"max_hold_ns":`, w.MaxHold)
	b = appendDuration(b, `,"grace_ns":`, w.Grace)
	b = appendDuration(b, `,"lasts_ns":`, w.Expected)
	b = appendDuration(b, `,"freeze_ns":`, w.Freeze)
	return append(appendLabel(b, &w.Label), '}')
}

func appendTarget(b []byte, t *lockkeeper.Target) []byte {
	b = appendText(append(b, `{"path":`...), string(t.Path))
	b = append(b, `,"mode":"`...)
	b = append(b, t.Mode.String()...)
	b = append(b, '"')
	b = appendInt(b, `,"units":`, int64(t.Units))
	b = appendInt(b, `,"limit":`, int64(t.Limit))
	return append(b, '}')
}

func appendEnding(b []byte, e *lockkeeper.Ending) []byte {
	b = append(b, `"kind":"`...)
	b = append(b, endingNames[e.Kind]...)
	b = append(b, '"')
	switch e.Kind {
	case lockkeeper.Release:
		b = appendUint(b, `,"id":`, e.ID)
	case lockkeeper.Revoke:
		b = appendRef(append(b, `,"claim":`...), e.Ref)
		if e.Force {
			b = append(b, `,"force":true`...)
		}
		b = appendLabel(b, &e.Label)
	case lockkeeper.Thaw:
		b = appendText(append(b, `,"path":`...), string(e.Path))
	case lockkeeper.Lapsed:
		b = appendLapse(append(b, `,"lapse":`...), &e.Lapse)
	}
	return append(b, '}')
}

func appendLapse(b []byte, l *lockkeeper.Lapse) []byte {
	b = append(b, `{"id":`...)
	b = strconv.AppendUint(b, l.ID, 10)
	b = appendText(append(b, `,"reason":`...), l.Reason.String())
	return append(appendDuration(b, `,"ends_at_ns":`, l.EndsAt), '}')
}

var endingNames = [...]string{
	lockkeeper.Release: "release",
	lockkeeper.Leave:   "leave",
	lockkeeper.Revoke:  "revoke",
	lockkeeper.Thaw:    "thaw",
	lockkeeper.Lapsed:  "lapsed",
}

// appendRef writes session and number apart, so that any ref can be read again.
func appendRef(b []byte, r lockkeeper.Ref) []byte {
	b = appendText(append(b, `{"session":`...), r.Session)
	b = append(b, `,"id":`...)
	return append(strconv.AppendUint(b, r.ID, 10), '}')
}

func appendLabel(b []byte, l *lockkeeper.Label) []byte {
	for _, part := range [...]struct{ name, text string }{{`,"as":`, l.As}, {`,"note":`, l.Note}, {`,"link":`, l.Link}} {
		if part.text != "" {
			b = appendText(append(b, part.name...), part.text)
		}
	}
	return b
}

func appendInt(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(append(b, name...), n, 10)
}

func appendUint(b []byte, name string, n uint64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendUint(append(b, name...), n, 10)
}

func appendDuration(b []byte, name string, d time.Duration) []byte {
	return appendInt(b, name, int64(d))
}

const hexDigits = "0123456789abcdef"

// appendText writes s as a JSON string. What is no UTF-8 becomes U+FFFD.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			b = append(b, s[start:i]...)
			if c == '"' || c == '\\' {
				b = append(b, '\\', c)
			} else {
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			b = append(append(b, s[start:i]...), "\uFFFD"...)
			start = i + size
		}
		i += size
	}
	return append(append(b, s[start:]...), '"')
}
