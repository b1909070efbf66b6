package lockkeeper

import (
	"encoding/json"
	"strconv"
	"time"
)

// A Status is written by hand: servers write one for every request over HTTP, and encoding/json takes
// several times as long. The tests hold the result against that of encoding/json.

// appendStatus appends the JSON of s, as encoding/json writes a statusJSON, with hidden characters
// escaped.
func appendStatus(b []byte, s *Status) ([]byte, error) {
	b = appendRef(append(b, `{"claim":`...), s.Ref)
	if s.Inside != (Ref{}) {
		b = appendRef(append(b, `,"inside":`...), s.Inside)
	}
	b = strconv.AppendUint(append(b, `,"change":`...), s.Change, 10)
	b = strconv.AppendUint(append(b, `,"revision":`...), s.Revision, 10)
	b = appendText(append(b, `,"state":`...), s.State.String())
	if s.Reason != NoReason {
		b = appendText(append(b, `,"reason":`...), s.Reason.String())
	}
	b = appendOptional(b, `,"text":`, s.Text)
	b, err := appendGrants(append(b, `,"targets":`...), s.Grants)
	b = appendNumber(b, `,"priority":`, s.Priority)
	b = appendOptional(b, `,"as":`, s.As)
	b = appendOptional(b, `,"note":`, s.Note)
	b = appendOptional(b, `,"link":`, s.Link)
	if s.Fence != 0 {
		b = strconv.AppendUint(append(b, `,"fence":`...), s.Fence, 10)
	}
	b = appendFlag(b, `,"unconfirmed":true`, s.Unconfirmed)
	b = appendFlag(b, `,"converting":true`, s.Converting)
	if err == nil {
		b, err = appendRare(b, `,"asked":`, s.Asked, s.Asked != nil)
	}
	b = appendFlag(b, `,"lapsed":true`, s.Lapsed)
	if s.Ticket != 0 {
		b = strconv.AppendUint(append(b, `,"ticket":`...), s.Ticket, 10)
	}
	b = appendNumber(b, `,"position":`, s.Position)
	if err == nil {
		b, err = appendRare(b, `,"waits":`, s.Waits, len(s.Waits) > 0)
	}
	if err == nil {
		b, err = appendRare(b, `,"blockers":`, s.Blockers, len(s.Blockers) > 0)
	}
	b = appendSeconds(append(b, `,"age":`...), s.Age)
	if s.Left != Forever {
		b = appendSeconds(append(b, `,"left":`...), s.Left)
	}
	if s.ETA != 0 {
		b = appendSeconds(append(b, `,"eta":`...), s.ETA)
	}
	return append(b, '}'), err
}

func appendGrants(b []byte, all []Grant) ([]byte, error) {
	if all == nil {
		return append(b, "null"...), nil
	}
	b = append(b, '[')
	for i := range all {
		if i > 0 {
			b = append(b, ',')
		}
		g := &all[i]
		b = appendText(append(b, `{"path":`...), string(g.Path))
		if g.Mode == 0 || g.Mode > ModePermits {
			_, err := g.Mode.MarshalText()
			return b, err
		}
		b = appendText(append(b, `,"mode":`...), g.Mode.String())
		b = appendNumber(b, `,"units":`, g.Units)
		b = appendNumber(b, `,"limit":`, g.Limit)
		b = appendNumber(b, `,"in_use":`, g.InUse)
		b = append(appendNumber(b, `,"slot":`, g.Slot), '}')
	}
	return append(b, ']'), nil
}

// appendRef appends the text of a Ref as JSON.
func appendRef(b []byte, r Ref) []byte {
	if r == (Ref{}) {
		return append(b, `""`...)
	}
	b = appendText(b, r.Session)
	b = strconv.AppendUint(append(b[:len(b)-1], '.'), r.ID, 10) // in place of the quotation mark
	return append(b, '"')
}

// appendText appends a text as JSON.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, _ := json.Marshal(s) // a text has no error
			return AppendVisible(b, text)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func appendOptional(b []byte, key, s string) []byte {
	if s == "" {
		return b
	}
	return appendText(append(b, key...), s)
}

func appendNumber(b []byte, key string, n int) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(append(b, key...), int64(n), 10)
}

func appendFlag(b []byte, keyAndValue string, set bool) []byte {
	if !set {
		return b
	}
	return append(b, keyAndValue...)
}

// appendRare appends what few statuses have, by encoding/json.
func appendRare(b []byte, key string, v any, there bool) ([]byte, error) {
	if !there {
		return b, nil
	}
	text, err := marshalVisible(v)
	return append(append(b, key...), text...), err
}

// appendSeconds appends the exact number of seconds, without trailing zeros.
func appendSeconds(b []byte, d time.Duration) []byte {
	whole, fraction := d/time.Second, d%time.Second
	if fraction < 0 {
		fraction = -fraction
		if whole == 0 {
			b = append(b, '-')
		}
	}
	b = strconv.AppendInt(b, int64(whole), 10)
	if fraction == 0 {
		return b
	}
	at := len(b)
	b = strconv.AppendInt(b, int64(time.Second+fraction), 10) // a 1, and nine digits
	b[at] = '.'
	for b[len(b)-1] == '0' {
		b = b[:len(b)-1]
	}
	return b
}
