package httpapi

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// mostMistakes bounds how many mistakes of one request are named.
const mostMistakes = 16

// mistakes collects everything that is wrong with a request, so that one answer names it all.
type mistakes struct {
	list  []string
	more  bool     // than the list has
	keys  []string // of the body, whose values can't be used
	other error    // a refusal of another kind, such as that of a body that is too large
}

func (m *mistakes) addf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	switch {
	case slices.Contains(m.list, text):
	case len(m.list) == mostMistakes:
		m.more = true
	default:
		m.list = append(m.list, text)
	}
}

// add adds what a check has found; nil is nothing.
func (m *mistakes) add(err error) {
	var e *lockkeeper.Error
	switch {
	case err == nil:
	case errors.As(err, &e) && e.Err == lockkeeper.ErrInvalid:
		m.addf("%s", e.Detail)
	case m.other == nil:
		m.other = err
	}
}

// in reports whether the value of one of these keys can't be used, so that what
// follows from its absence is no mistake of its own.
func (m *mistakes) in(keys ...string) bool {
	return slices.ContainsFunc(m.keys, func(key string) bool {
		top, _, _ := strings.Cut(key, ".")
		return slices.Contains(keys, strings.TrimSuffix(top, "[]"))
	})
}

// err is one error of all mistakes; nil if there are none.
func (m *mistakes) err() error {
	if m.other != nil || len(m.list) == 0 {
		return m.other
	}
	text := strings.Join(m.list, "; ")
	if m.more {
		text += "; and more"
	}
	return lockkeeper.Invalid("%s", text)
}
