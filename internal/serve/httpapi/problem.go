package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// problemType is the prefix of the types of all problems (RFC 9457).
const problemType = "https://lockkeeper.dev/problems/"

// A problem is the JSON of an error (RFC 9457), with the evidence of a lockkeeper.Error.
type problem struct {
	name     string
	Type     string               `json:"type"`
	Title    string               `json:"title"`
	Status   int                  `json:"status"`
	Detail   string               `json:"detail,omitempty"`
	Claim    lockkeeper.Ref       `json:"claim,omitzero"`
	Reason   lockkeeper.Reason    `json:"reason,omitempty"` // why something ended
	Position int                  `json:"position,omitempty"`
	ETA      seconds              `json:"eta,omitempty"`
	Blocked  []lockkeeper.Blocker `json:"blocked_by,omitempty"`
}

// A refusal is an error that has its own problem and header.
type refusal struct {
	problem
	header [2]string // name and value; "" for none
}

func (r *refusal) Error() string { return r.Title + ": " + r.Detail }

// kinds are the problems of the sentinel errors. The first match counts.
var kinds = []struct {
	err    error
	name   string
	status int
	title  string
}{
	{lockkeeper.Quota, "quota", http.StatusTooManyRequests, "quota exhausted"},
	{lockkeeper.Draining, "draining", http.StatusServiceUnavailable, "the server takes no new claims"},
	{lockkeeper.ErrInvalid, "invalid", http.StatusBadRequest, "invalid request"},
	{lockkeeper.ErrUnsupported, "unsupported", http.StatusNotImplemented, "not supported by this engine"},
	{lockkeeper.ErrDenied, "denied", http.StatusForbidden, "permission denied"},
	{lockkeeper.ErrDeadlock, "deadlock", http.StatusConflict, "deadlock"},
	{lockkeeper.ErrNotAcquired, "not-acquired", http.StatusConflict, "lock is taken"},
	{lockkeeper.ErrLost, "lost", http.StatusGone, "the claim has ended"},
	{lockkeeper.ErrNotHeld, "unknown-claim", http.StatusNotFound, "no such claim"},
	{lockkeeper.ErrSession, "unavailable", http.StatusServiceUnavailable, "concurrent requests for the same claim"},
	{lockkeeper.ErrUnavailable, "unavailable", http.StatusServiceUnavailable, "the engine did not answer"},
	{context.DeadlineExceeded, "unavailable", http.StatusServiceUnavailable, "the engine did not answer in time"},
	{context.Canceled, "unavailable", http.StatusServiceUnavailable, "the engine did not answer"},
}

// problemOf returns the problem of an error.
func problemOf(err error) problem {
	var said *refusal
	if errors.As(err, &said) {
		return said.problem
	}
	p := problem{name: "internal", Status: http.StatusInternalServerError, Title: "internal server error"}
	for _, kind := range kinds {
		if errors.Is(err, kind.err) {
			p.name, p.Status, p.Title = kind.name, kind.status, kind.title
			break
		}
	}
	if isPermanentQuota(err) {
		p.Status, p.Title = http.StatusForbidden, "not allowed by a quota"
	}
	var e *lockkeeper.Error
	if !errors.As(err, &e) {
		p.Detail = err.Error()
		return p
	}
	p.Detail = detail(e)
	p.Reason, p.Position, p.ETA, p.Blocked = e.Reason, e.Position, seconds(e.ETA), e.Blocked
	return p
}

// detail returns the text of an error without the sentinel, which the problem's type replaces.
func detail(e *lockkeeper.Error) string {
	bare := *e
	bare.Op, bare.Path, bare.Reason = "", "", lockkeeper.NoReason
	text := strings.TrimLeft(strings.TrimPrefix(bare.Error(), e.Err.Error()), ":; ")
	if text == "" {
		text = e.Error()
	}
	for _, b := range e.Blocked {
		text = strings.ReplaceAll(text, b.String(), blockerText(b))
	}
	return text
}

// fail writes an error. If an answer has begun, fail breaks the connection, so that the client does
// not take a part of the answer for the whole.
func (c *call) fail(err error) {
	p := problemOf(err)
	if p.Status == http.StatusInternalServerError {
		c.api.logger.Error("a request failed", "method", c.r.Method, "path", c.r.URL.Path, "error", err)
	} else {
		c.api.logger.LogAttrs(c.r.Context(), slog.LevelDebug, "a request was refused", slog.String("method", c.r.Method),
			slog.String("path", c.r.URL.Path), slog.Int("status", p.Status), slog.Any("error", err))
	}
	if c.answered {
		panic(http.ErrAbortHandler)
	}
	header := c.w.Header()
	var said *refusal
	if errors.As(err, &said) && said.header[0] != "" {
		header.Set(said.header[0], said.header[1])
	}
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests {
		header.Set("Retry-After", "1")
	}
	p.Type = problemType + p.name
	_ = c.send(p.Status, "application/problem+json", p) // the client may have gone
}

// write answers with JSON. An error means that the client did not read it.
func (c *call) write(status int, v any) error { return c.send(status, "application/json", v) }

// send answers with JSON of a media type.
func (c *call) send(status int, media string, v any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	return c.sendBytes(status, media, lockkeeper.AppendVisible(nil, b.Bytes()))
}

// sendBytes answers with text. An error means that the client did not read it; without an error it
// may not have read it either.
func (c *call) sendBytes(status int, media string, text []byte) error {
	return c.sendCached(status, media, text, "no-store")
}

var nosniff = []string{"nosniff"} // shared by all answers; nobody changes it

// sendCached is sendBytes with a Cache-Control.
func (c *call) sendCached(status int, media string, text []byte, caching string) error {
	header := c.w.Header()
	values := [...]string{media, strconv.Itoa(len(text)), caching} // one allocation; Header.Set makes three
	header["Content-Type"] = values[0:1:1]
	header["Content-Length"] = values[1:2:2]
	header["Cache-Control"] = values[2:3:3]
	header["X-Content-Type-Options"] = nosniff
	to := http.NewResponseController(c.w)
	_ = to.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails only in tests
	c.answered = true
	c.w.WriteHeader(status)
	if c.r.Method == http.MethodHead {
		return nil
	}
	if _, err := c.w.Write(text); err != nil {
		return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "the client did not read the answer", Cause: err}
	}
	return nil
}

func methodError(method string, allowed []string) error {
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead)
	}
	slices.Sort(allowed)
	list := strings.Join(slices.Compact(allowed), ", ")
	return &refusal{
		problem: problem{
			name: "method", Status: http.StatusMethodNotAllowed, Title: "method not allowed",
			Detail: "method " + quoted(method) + " is not allowed here; allowed are " + list,
		},
		header: [2]string{"Allow", list},
	}
}

// quoted returns untrusted text for a message: short, and without control characters.
func quoted(text string) string {
	if len(text) > 80 {
		text = text[:80] + "…"
	}
	return strconv.Quote(text)
}

// seconds is a duration in JSON: a number of seconds, rounded down to a microsecond.
type seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s seconds) MarshalJSON() ([]byte, error) { return s.append(nil), nil }

// append appends the JSON of s to b.
func (s seconds) append(b []byte) []byte {
	micros := time.Duration(s).Microseconds()
	if micros < 0 {
		b, micros = append(b, '-'), -micros
	}
	const perSecond = int64(time.Second / time.Microsecond)
	b = strconv.AppendInt(b, micros/perSecond, 10)
	fraction := micros % perSecond
	if fraction == 0 {
		return b
	}
	at := len(b)
	b = strconv.AppendInt(b, perSecond+fraction, 10) // a 1, and six digits
	b[at] = '.'
	return bytes.TrimRight(b, "0")
}
