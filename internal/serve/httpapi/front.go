package httpapi

import (
	"net/http"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/serve/page"
)

var frontRoutes = []route{{pattern: "GET /", handle: (*call).front}}

// front is GET /: the page for browsers, and GET /v1/server for programs. The page has no content of
// its own: it shows what the server answers to its requests. A query in its address, which chat programs and
// others add to links, means nothing to it.
func (c *call) front() error {
	c.w.Header().Set("Vary", "Accept")
	if acceptsJSON(c.r) {
		var m mistakes
		c.query(&m)
		if err := m.err(); err != nil {
			return err
		}
		var err error
		if c.pass, err = c.api.admit(c); err != nil {
			return err
		}
		c.own = c.pass.Engine()
		return c.server()
	}
	if !c.pageIsServed() {
		page.Confine(c.w.Header())
		return c.sendBytes(http.StatusOK, "text/html; charset=utf-8", []byte(frontElsewhere))
	}
	f, _ := page.Find(page.Index)
	return c.sendFile(f)
}

// frontElsewhere is for browsers of other machines if the server asks for no tokens.
const frontElsewhere = `<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>Lockkeeper</title>
<h1>Lockkeeper</h1>
<p>This server asks its clients for no tokens, so it serves its page to browsers on its own machine only.
Start it with <code>--tokens</code> to see the page here.</p>
<p>For programs: <a href="/openapi.json">the API</a>.</p>
</html>
`

// acceptsJSON reports whether a client accepts JSON and no HTML.
func acceptsJSON(r *http.Request) bool {
	accepts := strings.Join(r.Header.Values("Accept"), ",")
	return strings.Contains(accepts, "json") && !strings.Contains(accepts, "text/html")
}
