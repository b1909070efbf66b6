package httpapi

import (
	"bytes"
	"context"
	_ "embed"
	"html/template"
	"net/http"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/solo"
)

//go:embed front.html
var frontText string

// frontPage is the page that a browser gets at the address of a server.
var frontPage = template.Must(template.New("front").Parse(frontText))

var frontRoutes = []route{{pattern: "GET /", handle: (*call).front}}

// A front is the content of the page.
type front struct {
	Known         bool // the reader has authenticated, and may see the fields below
	Version       string
	Draining      string
	Counted       bool
	Held, Waiting any
}

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
	page := front{Known: c.pass != nil}
	if page.Known {
		page.Version = c.api.options.Version
		page.Draining, _ = c.api.gate.Draining()
		if c.api.options.About != nil {
			ctx, cancel := context.WithTimeout(c.r.Context(), solo.RoundTrip)
			defer cancel()
			if about, err := c.api.options.About(ctx); err == nil { // the page can do without it
				page.Held, page.Waiting = about["held"], about["waiting"]
				page.Counted = page.Held != nil && page.Waiting != nil
			}
		}
	}
	var text bytes.Buffer
	if err := frontPage.Execute(&text, page); err != nil {
		return err
	}
	c.w.Header().Set("Content-Security-Policy",
		"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	c.w.Header().Set("Referrer-Policy", "no-referrer")
	return c.sendBytes(http.StatusOK, "text/html; charset=utf-8", text.Bytes())
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
