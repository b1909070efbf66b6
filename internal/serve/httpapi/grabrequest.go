package httpapi

import (
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/grab"
)

// maxGrabWait is how long a POST may stay open until its claim is granted.
const maxGrabWait = time.Minute

// A grabRequest is what a request asks for a name.
type grabRequest struct {
	grab.Request
	wait  time.Duration
	token grab.Token // of the hold that a repeat continues; zero: of any
}

// grabFields are the fields that each method takes, in the query or in the body.
var grabFields = map[string][]string{
	http.MethodGet:    {"as", "also"},
	http.MethodDelete: {"as", "also"},
	http.MethodPost: {
		"as", "also", "shared", "limit", "units", "ttl", "for", "priority", "note", "link", "wait", "fence",
	},
	http.MethodPatch: {"as", "also", "ttl", "for"},
}

// readGrab reads path, query and body. Its error names everything that is wrong.
func (c *call) readGrab() (grabRequest, error) {
	var r fieldReader
	c.fields(&r)
	fields := r.fields
	method := c.r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	var ask grabRequest
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if known := grabFields[method]; !slices.Contains(known, name) {
			r.addf("unknown parameter %s: allowed are %s", quoted(name), strings.Join(known, ", "))
		} else if len(fields[name]) > 1 && name != "also" {
			r.addf("%s is given %d times: give it once", name, len(fields[name]))
		}
	}
	ask.As, ask.Note, ask.Link = r.one("as"), r.one("note"), r.one("link")
	ask.Priority = r.number("priority", 0)
	ask.TTL, ask.For, ask.wait = r.duration("ttl"), r.duration("for"), r.duration("wait")
	if ask.wait > maxGrabWait {
		r.addf("wait %s is out of range: 0 to 1m for one request, so ask again", ask.wait)
	}
	ask.token = r.token("fence")
	if r.fields.Has("fence") && ask.wait > 0 {
		r.addf("fence excludes wait: a fence names a hold that exists or is lost")
	}
	ask.Targets = r.targets(append([]string{c.variable}, fields["also"]...))
	if method == http.MethodGet && ask.As == "" && len(fields["as"]) == 0 {
		return ask, r.err()
	}
	checked := ask.Request
	if len(checked.Targets) == 0 { // r has the mistakes of the path
		checked.Targets = []lockkeeper.Target{{Path: "path", Mode: lockkeeper.ModeExclusive}}
	}
	if checked.As == "" && !r.in("as") {
		r.addf("no name: add as=NAME, with something that no other job has")
		checked.As = "as"
	}
	if r.in("as") {
		checked.As = "as" // r has the mistake
	}
	r.add(checked.Check())
	return ask, r.err()
}

// fields reads the fields of the query and the body, by name.
func (c *call) fields(r *fieldReader) {
	fields, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		r.addf("invalid query: %s", err)
	}
	r.fields = fields
	if c.r.ContentLength == 0 {
		return
	}
	var more url.Values
	switch media, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type")); media {
	case "application/x-www-form-urlencoded":
		text, err := c.read()
		r.add(err)
		if more, err = url.ParseQuery(string(text)); err != nil {
			r.addf("invalid form: %s", err)
		}
	default:
		var body grabBody
		c.body(&body, &r.mistakes)
		more = body.fields()
	}
	for name, values := range more {
		fields[name] = append(fields[name], values...)
	}
}

// A grabBody is the JSON of a request. It has the same fields as a query.
type grabBody struct {
	As       *string        `json:"as"`
	Also     []string       `json:"also"`
	Shared   *bool          `json:"shared"`
	Limit    *int           `json:"limit"`
	Units    *int           `json:"units"`
	TTL      *durationField `json:"ttl"`
	For      *durationField `json:"for"`
	Priority *int           `json:"priority"`
	Note     *string        `json:"note"`
	Link     *string        `json:"link"`
	Wait     *durationField `json:"wait"`
	Fence    *string        `json:"fence"`
}

// fields returns the fields that are set, as a query.
func (b *grabBody) fields() url.Values {
	fields := url.Values{"also": b.Also}
	for name, v := range map[string]*string{"as": b.As, "note": b.Note, "link": b.Link, "fence": b.Fence} {
		if v != nil {
			fields.Set(name, *v)
		}
	}
	for name, v := range map[string]*int{"limit": b.Limit, "units": b.Units, "priority": b.Priority} {
		if v != nil {
			fields.Set(name, strconv.Itoa(*v))
		}
	}
	for name, v := range map[string]*durationField{"ttl": b.TTL, "for": b.For, "wait": b.Wait} {
		if v != nil {
			fields.Set(name, time.Duration(*v).String())
		}
	}
	if b.Shared != nil {
		fields.Set("shared", strconv.FormatBool(*b.Shared))
	}
	return fields
}

// A fieldReader parses fields and collects mistakes.
type fieldReader struct {
	fields url.Values
	mistakes
}

func (r *fieldReader) one(name string) string { return r.fields.Get(name) }

// flag returns the value of a field, true for an empty value, and false if the field is absent.
func (r *fieldReader) flag(name string) bool {
	if !r.fields.Has(name) || r.one(name) == "" {
		return r.fields.Has(name)
	}
	yes, err := strconv.ParseBool(r.one(name))
	if err != nil {
		r.addf("%s %s: write 1 or true, 0 or false", name, quoted(r.one(name)))
	}
	return yes
}

// number returns the value of a field, or usual if the field is absent.
func (r *fieldReader) number(name string, usual int) int {
	if !r.fields.Has(name) {
		return usual
	}
	n, err := strconv.Atoi(r.one(name))
	if err != nil {
		r.addf("%s %s is not a number", name, quoted(r.one(name)))
	}
	return n
}

// duration returns the value of a field, or 0 if the field is absent.
func (r *fieldReader) duration(name string) time.Duration {
	if !r.fields.Has(name) {
		return 0
	}
	d, err := parseDuration(name, r.one(name))
	r.add(err)
	return d
}

// token returns the token in a field; zero if the field is absent.
func (r *fieldReader) token(name string) grab.Token {
	if !r.fields.Has(name) {
		return grab.Token{}
	}
	t, err := grab.ParseToken(r.one(name))
	r.add(err)
	return t
}

// targets returns a target for each path, in the mode that the fields give.
func (r *fieldReader) targets(texts []string) []lockkeeper.Target {
	as := lockkeeper.Target{Mode: lockkeeper.ModeExclusive}
	limited, shared := r.fields.Has("limit"), r.flag("shared")
	switch {
	case limited && shared:
		r.addf("limit and shared exclude each other: a limit counts holders, sharing does not")
	case limited:
		as.Mode, as.Limit, as.Units = lockkeeper.ModePermits, r.number("limit", 0), r.number("units", 1)
	case shared:
		as.Mode = lockkeeper.ModeShared
	}
	if r.fields.Has("units") && !limited {
		r.addf("units need a limit: give the number of units that exist")
	}
	var targets []lockkeeper.Target
	for _, text := range texts {
		p, err := lockkeeper.ParsePath(text)
		if err != nil {
			r.add(err)
			continue
		}
		as.Path = p
		targets = append(targets, as)
	}
	return targets
}
