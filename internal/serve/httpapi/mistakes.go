package httpapi

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// maxMistakes bounds the mistakes that one answer lists.
const maxMistakes = 16

// mistakes collects all mistakes of a request, so that one answer lists them.
type mistakes struct {
	list  []string
	more  bool     // there are more than in list
	keys  []string // keys of the body with wrong values
	other error    // an error of another kind, such as of a body that is too large
}

func (m *mistakes) addf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	switch {
	case slices.Contains(m.list, text):
	case len(m.list) == maxMistakes:
		m.more = true
	default:
		m.list = append(m.list, text)
	}
}

// add adds the error of a check; err may be nil.
func (m *mistakes) add(err error) {
	if err == nil {
		return
	}
	var e *lockkeeper.Error
	switch {
	case errors.As(err, &e) && e.Err == lockkeeper.ErrInvalid:
		m.addf("%s", e.Detail)
	case m.other == nil:
		m.other = err
	}
}

// in reports whether one of these keys has a wrong value, so that its absence is no further
// mistake.
func (m *mistakes) in(keys ...string) bool {
	return slices.ContainsFunc(m.keys, func(key string) bool {
		top, _, _ := strings.Cut(key, ".")
		return slices.Contains(keys, strings.TrimSuffix(top, "[]"))
	})
}

// err returns one error for all mistakes; nil if there are none.
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
