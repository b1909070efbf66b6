package httpapi

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// path is the {path...} of the URL, which is a path as people write it.
func (c *call) path(m *mistakes) lockkeeper.Path {
	path, err := lockkeeper.ParsePath(c.r.PathValue("path"))
	m.add(err)
	return path
}

// query reads the query of the URL. It adds unknown and repeated parameters to m, and leaves
// them out.
func (c *call) query(m *mistakes, known ...string) url.Values {
	if c.r.URL.RawQuery == "" {
		return nil
	}
	values, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		m.addf("the query can't be read: %s", err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		given := values[name]
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			m.addf("there is no parameter %s: this takes none", quoted(name))
		case !slices.Contains(known, name):
			m.addf("there is no parameter %s: there are %s", quoted(name), strings.Join(known, ", "))
		case len(given) > 1:
			m.addf("%s is given %d times: give it once", name, len(given))
		case !utf8.ValidString(given[0]):
			m.addf("%s is not UTF-8", name)
		default:
			continue
		}
		delete(values, name)
	}
	return values
}

// spanOf reads a duration of a query: "30s", or a number of seconds.
func spanOf(name, text string) (time.Duration, error) {
	if d, err := duration.Parse(text); err == nil {
		return d, nil
	}
	if d, ok := secondsOf(text); ok {
		return d, nil
	}
	return 0, lockkeeper.Invalid("%s %s is no duration: write it as 30s, 5m or 2d, or as a number of seconds", name,
		quoted(text))
}

// secondsOf reads a number of seconds as JSON writes it, not below 0.
func secondsOf(text string) (time.Duration, bool) {
	if len(text) > 40 || text == "" || text[0] < '0' || text[0] > '9' || strings.ContainsAny(text, "xX_pP") {
		return 0, false
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || value >= float64(lockkeeper.Forever/time.Second) {
		return 0, false
	}
	return time.Duration(value * float64(time.Second)), true
}

// span is a duration in the JSON of a request: a number of seconds, or text.
type span time.Duration

// UnmarshalJSON reads a number of seconds, or text such as "30s".
func (s *span) UnmarshalJSON(text []byte) error {
	d, err := spanIn("the duration", text)
	*s = span(d)
	return err
}

// spanIn reads a duration as JSON has it.
func spanIn(name string, text []byte) (time.Duration, error) {
	written := string(text)
	if text[0] == '"' {
		if err := json.Unmarshal(text, &written); err != nil {
			return 0, err
		}
		return spanOf(name, written)
	}
	if number, ok := secondsOf(written); ok {
		return number, nil
	}
	return 0, lockkeeper.Invalid("%s %s is neither a number of seconds, such as 1.5, nor text such as \"30s\"", name,
		quoted(written))
}

// forever is a wait without a bound, as JSON has it.
const forever = `"forever"`

// patience is a span, or "forever".
type patience time.Duration

// UnmarshalJSON reads a span, or "forever".
func (p *patience) UnmarshalJSON(text []byte) error {
	if string(text) == forever {
		*p = patience(lockkeeper.Forever)
		return nil
	}
	return (*span)(p).UnmarshalJSON(text)
}

// body reads the JSON object of the request into a struct. It adds mistakes to m, such as
// unknown or repeated keys.
func (c *call) body(into any, m *mistakes) {
	media, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		m.add(&refusal{problem: problem{
			name: "media-type", Status: http.StatusUnsupportedMediaType, Title: "unsupported media type",
			Detail: "the body has the Content-Type " + quoted(c.r.Header.Get("Content-Type")) +
				": send JSON, with Content-Type: application/json",
		}})
		return
	}
	text, err := c.read()
	if err != nil {
		m.add(err)
		return
	}
	readObject(text, into, m)
}

// read takes in the body, within its bound of size; that of time is set already.
func (c *call) read() ([]byte, error) {
	if c.r.ContentLength > mostBody {
		return nil, tooLarge()
	}
	from := http.MaxBytesReader(c.w, c.r.Body, mostBody)
	text, err := io.ReadAll(io.LimitReader(from, ownBody))
	if err == nil && len(text) == ownBody { // the rest takes room as it arrives
		if err := c.pass.Usage().TakeRoom(c.r.Context(), mostBody); err != nil {
			return nil, err
		}
		defer c.pass.Usage().GiveRoom(mostBody)
		var rest []byte
		rest, err = io.ReadAll(from)
		text = append(text, rest...)
	}
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge()
	case err != nil:
		return nil, lockkeeper.Invalid("the body did not come whole: %s", err)
	case !utf8.Valid(text):
		return nil, lockkeeper.Invalid("the body is not UTF-8")
	}
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{}) // else it would end a long poll
	return text, nil
}

func tooLarge() error {
	return &refusal{
		problem: problem{
			name: "too-large", Status: http.StatusRequestEntityTooLarge, Title: "the body is too large",
			Detail: fmt.Sprintf("the body is larger than %d bytes, which is the most", mostBody),
		},
		header: [2]string{"Connection", "close"},
	}
}

// jsonKind is what JSON calls a type.
func jsonKind(t reflect.Type) string {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "text"
	}
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a whole number"
}
