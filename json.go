package lockkeeper

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// In JSON, durations are numbers of seconds, such as 83.2, exact to the nanosecond. An infinite
// duration is left out. Every value reads back unchanged.

// marshalVisible writes v with its hidden characters escaped, because many tools print
// JSON as it is.
func marshalVisible(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil || bytes.IndexFunc(text, hidden) < 0 {
		return text, err
	}
	return AppendVisible(nil, text), nil
}

// seconds is a duration in JSON.
type seconds time.Duration

// MarshalJSON writes the exact number without trailing zeros.
func (s seconds) MarshalJSON() ([]byte, error) { return appendSeconds(nil, time.Duration(s)), nil }

// UnmarshalJSON reads a number of seconds. It refuses with ErrInvalid any other
// text, and numbers that no duration can hold. Digits beyond the nanosecond are
// dropped.
func (s *seconds) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, []byte("null")) {
		return nil
	}
	number := string(text)
	if strings.ContainsAny(number, "eE") { // time.ParseDuration has no exponents
		value, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return invalidf("duration %s is not a number of seconds, such as 83.2", text)
		}
		number = strconv.FormatFloat(value, 'f', -1, 64)
	}
	d, err := time.ParseDuration(number + "s")
	if err != nil {
		return invalidf("duration %s is not a number of seconds, such as 83.2", text)
	}
	*s = seconds(d)
	return nil
}

// finite returns the JSON form of a duration; nil, which JSON leaves out, for Forever.
func finite(d time.Duration) *seconds {
	if d == Forever {
		return nil
	}
	return (*seconds)(&d)
}

// endless is the reverse of finite.
func endless(s *seconds) time.Duration {
	if s == nil {
		return Forever
	}
	return time.Duration(*s)
}

type plainStatus Status

// statusJSON is a Status with the fields that differ in JSON.
type statusJSON struct {
	plainStatus
	Age  seconds  `json:"age"`
	Left *seconds `json:"left,omitempty"`
	ETA  seconds  `json:"eta,omitempty"`
}

// MarshalJSON writes durations as seconds, and leaves out a Left without end.
func (s Status) MarshalJSON() ([]byte, error) { return appendStatus(make([]byte, 0, usualStatus), &s) }

// usualStatus is the size of most statuses in JSON, with room for a few more fields.
const usualStatus = 384

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Status) UnmarshalJSON(text []byte) error {
	var read statusJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*s = Status(read.plainStatus)
	s.Age, s.Left, s.ETA = time.Duration(read.Age), endless(read.Left), time.Duration(read.ETA)
	return nil
}

type plainAsked Asked

type askedJSON struct {
	plainAsked
	Left *seconds `json:"left,omitempty"`
}

// MarshalJSON writes Left as seconds, and leaves it out if it has no end.
func (a Asked) MarshalJSON() ([]byte, error) {
	return marshalVisible(askedJSON{plainAsked(a), finite(a.Left)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Asked) UnmarshalJSON(text []byte) error {
	var read askedJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*a = Asked(read.plainAsked)
	a.Left = endless(read.Left)
	return nil
}

type plainBlocker Blocker

type blockerJSON struct {
	plainBlocker
	Age  seconds `json:"age"`
	Left seconds `json:"left,omitempty"`
}

// MarshalJSON writes durations as seconds.
func (b Blocker) MarshalJSON() ([]byte, error) {
	return marshalVisible(blockerJSON{plainBlocker(b), seconds(b.Age), seconds(b.Left)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (b *Blocker) UnmarshalJSON(text []byte) error {
	var read blockerJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*b = Blocker(read.plainBlocker)
	b.Age, b.Left = time.Duration(read.Age), time.Duration(read.Left)
	return nil
}

type plainWant Want

type wantJSON struct {
	plainWant
	Wait     *seconds `json:"wait,omitempty"`
	Quiet    seconds  `json:"quiet,omitempty"`
	After    seconds  `json:"after,omitempty"`
	MaxHold  seconds  `json:"max_hold,omitempty"`
	Grace    seconds  `json:"grace,omitempty"`
	Expected seconds  `json:"expected,omitempty"`
	Freeze   seconds  `json:"freeze,omitempty"`
}

// MarshalJSON writes durations as seconds, and leaves out a Wait without end.
func (w Want) MarshalJSON() ([]byte, error) {
	return json.Marshal(wantJSON{plainWant(w), finite(w.Wait), seconds(w.Quiet), seconds(w.After),
		seconds(w.MaxHold), seconds(w.Grace), seconds(w.Expected), seconds(w.Freeze)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (w *Want) UnmarshalJSON(text []byte) error {
	var read wantJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*w = Want(read.plainWant)
	w.Wait, w.Quiet, w.After = endless(read.Wait), time.Duration(read.Quiet), time.Duration(read.After)
	w.MaxHold, w.Grace = time.Duration(read.MaxHold), time.Duration(read.Grace)
	w.Expected, w.Freeze = time.Duration(read.Expected), time.Duration(read.Freeze)
	return nil
}

type plainSession Session

type sessionJSON struct {
	plainSession
	TTL seconds `json:"ttl"`
}

// MarshalJSON writes the TTL as seconds.
func (s Session) MarshalJSON() ([]byte, error) {
	return json.Marshal(sessionJSON{plainSession(s), seconds(s.TTL)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Session) UnmarshalJSON(text []byte) error {
	var read sessionJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*s = Session(read.plainSession)
	s.TTL = time.Duration(read.TTL)
	return nil
}
