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

// path returns the {path...} of the URL.
func (c *call) path(m *mistakes) lockkeeper.Path {
	path, err := lockkeeper.ParsePath(c.variable)
	m.add(err)
	return path
}

// query returns the parameters of the URL. It adds unknown and repeated ones to m, and drops them.
func (c *call) query(m *mistakes, known ...string) url.Values {
	if c.r.URL.RawQuery == "" {
		return nil
	}
	values, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		m.addf("invalid query: %s", err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		given := values[name]
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			m.addf("unknown parameter %s: none is allowed here", quoted(name))
		case !slices.Contains(known, name):
			m.addf("unknown parameter %s: allowed are %s", quoted(name), strings.Join(known, ", "))
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

// parseDuration parses a parameter: "30s", or a number of seconds.
func parseDuration(name, text string) (time.Duration, error) {
	if d, err := duration.Parse(text); err == nil {
		return d, nil
	}
	if d, ok := secondsOf(text); ok {
		return d, nil
	}
	return 0, lockkeeper.Invalid("%s %s is not a duration: write 30s, 5m or 2d, or a number of seconds", name,
		quoted(text))
}

// secondsOf parses a number of seconds in JSON syntax, not below 0.
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

// A durationField is a duration in the JSON of a request: a number of seconds, or text such as
// "30s".
type durationField time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (s *durationField) UnmarshalJSON(text []byte) error {
	d, err := parseJSONDuration("the duration", text)
	*s = durationField(d)
	return err
}

// parseJSONDuration parses a JSON value.
func parseJSONDuration(name string, text []byte) (time.Duration, error) {
	written := string(text)
	if text[0] == '"' {
		if err := json.Unmarshal(text, &written); err != nil {
			return 0, err
		}
		return parseDuration(name, written)
	}
	if number, ok := secondsOf(written); ok {
		return number, nil
	}
	return 0, lockkeeper.Invalid("%s %s is neither a number of seconds, such as 1.5, nor text such as \"30s\"", name,
		quoted(written))
}

// forever is the JSON of a wait without limit.
const forever = `"forever"`

// A waitField is a durationField or "forever".
type waitField time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (p *waitField) UnmarshalJSON(text []byte) error {
	if string(text) == forever {
		*p = waitField(lockkeeper.Forever)
		return nil
	}
	return (*durationField)(p).UnmarshalJSON(text)
}

// body reads the JSON object of the request into a struct. It adds mistakes to m, such as
// unknown or repeated keys.
func (c *call) body(into any, m *mistakes) {
	if media := c.r.Header.Get("Content-Type"); media != mediaJSON && !isJSON(media) {
		m.add(&refusal{problem: problem{
			name: "media-type", Status: http.StatusUnsupportedMediaType, Title: "unsupported media type",
			Detail: "Content-Type " + quoted(c.r.Header.Get("Content-Type")) +
				" is not supported: send JSON with Content-Type: application/json",
		}})
		return
	}
	text, err := c.read()
	if err != nil {
		m.add(err)
		return
	}
	if asked, ok := into.(*claimRequest); ok {
		if asked.readPlain(text) {
			return
		}
		*asked = claimRequest{}
	}
	readObject(text, into, m)
}

const mediaJSON = "application/json"

// isJSON reports whether a Content-Type is that of JSON, with whatever parameters.
func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == mediaJSON
}

// read returns the body. It bounds the size; serve has set a deadline.
func (c *call) read() ([]byte, error) {
	if c.r.ContentLength > maxBody {
		return nil, tooLarge()
	}
	var text []byte
	var err error
	if n := c.r.ContentLength; n >= 0 && n <= freeBody {
		text = make([]byte, n)
		_, err = io.ReadFull(c.r.Body, text)
	} else {
		from := http.MaxBytesReader(c.w, c.r.Body, maxBody)
		text, err = io.ReadAll(io.LimitReader(from, freeBody))
		if err == nil && len(text) == freeBody { // the rest counts against the identity's limit
			if err := c.pass.Usage().TakeRoom(c.r.Context(), maxBody); err != nil {
				return nil, err
			}
			defer c.pass.Usage().GiveRoom(maxBody)
			var rest []byte
			rest, err = io.ReadAll(from)
			text = append(text, rest...)
		}
	}
	if err != nil {
		if _, over := errors.AsType[*http.MaxBytesError](err); over {
			return nil, tooLarge()
		}
		return nil, lockkeeper.Invalid("the body is incomplete: %s", err)
	}
	if !utf8.Valid(text) {
		return nil, lockkeeper.Invalid("the body is not UTF-8")
	}
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{}) // it must not end a long poll
	return text, nil
}

func tooLarge() error {
	return &refusal{
		problem: problem{
			name: "too-large", Status: http.StatusRequestEntityTooLarge, Title: "the body is too large",
			Detail: fmt.Sprintf("the body has more than the allowed %d bytes", maxBody),
		},
		header: [2]string{"Connection", "close"},
	}
}

// jsonKind names the JSON type of a Go type.
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
