package httpapi

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/solo"
)

var frontRoutes = []route{{pattern: "GET /", handle: (*call).front}}

// front is GET /: a page for browsers, and GET /v1/server for programs. To an
// unauthenticated reader the page says only that the server requires credentials.
func (c *call) front() error {
	var m mistakes
	c.query(&m)
	if err := m.err(); err != nil {
		return err
	}
	asksJSON := acceptsJSON(c.r)
	if asksJSON || c.api.gate.Open() || hasCredentials(c.r) {
		var err error
		if c.pass, err = c.api.admit(c.r); err != nil {
			return err
		}
		c.own = c.pass.Engine()
	}
	if asksJSON {
		return c.server()
	}
	text := frontEmpty
	if c.pass != nil {
		text = c.frontText()
	}
	c.w.Header().Set("Content-Security-Policy",
		"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	c.w.Header().Set("Referrer-Policy", "no-referrer")
	return c.sendBytes(http.StatusOK, "text/html; charset=utf-8", []byte(text))
}

// The pages. They are no templates: package html/template makes the command lk a third larger (make size).
const (
	frontHead = `<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>Lockkeeper</title>
`
	frontTail = `<p>For programs: <a href="/openapi.json">the API</a>, and
<a href="https://github.com/lockkeeper/lockkeeper/blob/main/docs/http.md">how it is used</a>.</p>
</html>
`
	frontEmpty = frontHead + `<h1>Lockkeeper</h1>
<p>This server asks its clients for a token or a certificate.</p>
` + frontTail
)

// frontText returns the page for a reader who may see the server.
func (c *call) frontText() string {
	text := frontHead + "<h1>Lockkeeper " + html.EscapeString(c.api.options.Version) + "</h1>\n"
	if c.api.options.About != nil {
		ctx, cancel := context.WithTimeout(c.r.Context(), solo.RoundTrip)
		defer cancel()
		about, err := c.api.options.About(ctx)
		held, waiting := about["held"], about["waiting"]
		if err == nil && held != nil && waiting != nil { // the page can do without it
			text += fmt.Sprintf("<p>%v held, %v waiting.</p>\n", held, waiting)
		}
	}
	if draining, _ := c.api.gate.Draining(); draining != "" {
		text += "<p>It takes no new claims: " + html.EscapeString(draining) + "</p>\n"
	}
	return text + `<ul>
<li><a href="/v1/why">The holders, and what each claim waits for</a> (JSON)
<li><a href="/v1/stats">Statistics</a> (JSON)
</ul>
` + frontTail
}

// hasCredentials reports whether a request has credentials.
func hasCredentials(r *http.Request) bool {
	return r.Header.Get("Authorization") != "" || r.TLS != nil && len(r.TLS.VerifiedChains) > 0
}

// acceptsJSON reports whether a client accepts JSON and no HTML.
func acceptsJSON(r *http.Request) bool {
	accepts := strings.Join(r.Header.Values("Accept"), ",")
	return strings.Contains(accepts, "json") && !strings.Contains(accepts, "text/html")
}
