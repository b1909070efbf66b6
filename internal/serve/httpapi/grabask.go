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

// maxPlaceWait is how long one POST may stay open for a place to come up.
const maxPlaceWait = time.Minute

// placeAsk is what a request says about a place.
type placeAsk struct {
	grab.Request
	wait  time.Duration
	token grab.Token // of the hold that a repeat continues; zero: any
}

// placeFields are the names that each method takes, in the query or in the body.
var placeFields = map[string][]string{
	http.MethodGet:    {"as", "also"},
	http.MethodDelete: {"as", "also"},
	http.MethodPost: {
		"as", "also", "shared", "limit", "units", "ttl", "for", "priority", "note", "link", "wait", "fence",
	},
	http.MethodPatch: {"as", "also", "ttl", "for"},
}

// placeRequest reads the request: its path, and what its query and its body say. It refuses
// everything that is wrong at once.
func (c *call) placeRequest() (placeAsk, error) {
	var r placeReader
	c.fields(&r)
	fields := r.fields
	method := c.r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	var ask placeAsk
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if known := placeFields[method]; !slices.Contains(known, name) {
			r.addf("there is no parameter %s: there are %s", quoted(name), strings.Join(known, ", "))
		} else if len(fields[name]) > 1 && name != "also" {
			r.addf("%s is given %d times: give it once", name, len(fields[name]))
		}
	}
	ask.As, ask.Note, ask.Link = r.one("as"), r.one("note"), r.one("link")
	ask.Priority = r.number("priority", 0)
	ask.TTL, ask.For, ask.wait = r.duration("ttl"), r.duration("for"), r.duration("wait")
	if ask.wait > maxPlaceWait {
		r.addf("wait %s is out of range: 0 to 1m for one request, so ask again", ask.wait)
	}
	ask.token = r.token("fence")
	if r.fields.Has("fence") && ask.wait > 0 {
		r.addf("wait goes without fence: a hold is there or lost, and never waited for")
	}
	ask.Targets = r.targets(append([]string{c.r.PathValue("path")}, fields["also"]...))
	if method == http.MethodGet && ask.As == "" && len(fields["as"]) == 0 {
		return ask, r.err()
	}
	checked := ask.Request
	if len(checked.Targets) == 0 { // what is wrong with the path is said already
		checked.Targets = []lockkeeper.Target{{Path: "path", Mode: lockkeeper.ModeExclusive}}
	}
	if r.in("as") {
		checked.As = "as" // likewise
	}
	r.add(checked.Check())
	return ask, r.err()
}

// fields reads the fields of the query and the body, by name.
func (c *call) fields(r *placeReader) {
	fields, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		r.addf("the query can't be read: %s", err)
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
			r.addf("the form can't be read: %s", err)
		}
	default:
		var body placeBody
		c.body(&body, &r.mistakes)
		more = body.fields()
	}
	for name, values := range more {
		fields[name] = append(fields[name], values...)
	}
}

// placeBody is a POST's JSON: the same fields as those of a query.
type placeBody struct {
	As       *string  `json:"as"`
	Also     []string `json:"also"`
	Shared   *bool    `json:"shared"`
	Limit    *int     `json:"limit"`
	Units    *int     `json:"units"`
	TTL      *span    `json:"ttl"`
	For      *span    `json:"for"`
	Priority *int     `json:"priority"`
	Note     *string  `json:"note"`
	Link     *string  `json:"link"`
	Wait     *span    `json:"wait"`
	Fence    *string  `json:"fence"`
}

// fields are what is there, as in a query.
func (b *placeBody) fields() url.Values {
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
	for name, v := range map[string]*span{"ttl": b.TTL, "for": b.For, "wait": b.Wait} {
		if v != nil {
			fields.Set(name, time.Duration(*v).String())
		}
	}
	if b.Shared != nil {
		fields.Set("shared", strconv.FormatBool(*b.Shared))
	}
	return fields
}

// placeReader reads fields and collects what is wrong with them.
type placeReader struct {
	fields url.Values
	mistakes
}

func (r *placeReader) one(name string) string { return r.fields.Get(name) }

// flag is true if the field is there and does not say no.
func (r *placeReader) flag(name string) bool {
	if !r.fields.Has(name) || r.one(name) == "" {
		return r.fields.Has(name)
	}
	yes, err := strconv.ParseBool(r.one(name))
	if err != nil {
		r.addf("%s %s: write 1 or true, 0 or false", name, quoted(r.one(name)))
	}
	return yes
}

// number is a field's, or usual if it is not there.
func (r *placeReader) number(name string, usual int) int {
	if !r.fields.Has(name) {
		return usual
	}
	n, err := strconv.Atoi(r.one(name))
	if err != nil {
		r.addf("%s %s is not a number", name, quoted(r.one(name)))
	}
	return n
}

// duration is a field's, and 0 if it is not there.
func (r *placeReader) duration(name string) time.Duration {
	if !r.fields.Has(name) {
		return 0
	}
	d, err := spanOf(name, r.one(name))
	r.add(err)
	return d
}

// token returns the token in a field; zero if the field is absent.
func (r *placeReader) token(name string) grab.Token {
	if !r.fields.Has(name) {
		return grab.Token{}
	}
	t, err := grab.ParseToken(r.one(name))
	r.add(err)
	return t
}

// targets are the paths in the mode that the fields say.
func (r *placeReader) targets(texts []string) []lockkeeper.Target {
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
		r.addf("units go with a limit: of how many are they?")
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
