package httpapi

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/page"
)

// browserRoutes are the routes that only the page uses. They may change with it, so openapi.json does
// not have them.
var browserRoutes = []route{
	{"POST /page/session", true, (*call).login},
	{"GET /page/session", false, (*call).browserSession},
	{"DELETE /page/session", false, (*call).logout},
	{"GET /page/{file}", false, (*call).file},
}

// pageIsServed reports whether c may have the page. Without tokens only browsers of this machine
// may: the Host of a request protects an address that others can reach less than a loopback one.
func (c *call) pageIsServed() bool {
	if !c.api.gate.Open() {
		return true
	}
	local, ok := c.r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return !ok || local.IP.IsLoopback()
}

// file is GET /page/{file}.
func (c *call) file() error {
	var m mistakes
	c.query(&m)
	if err := m.err(); err != nil {
		return err
	}
	f, ok := page.Find(c.variable)
	if !ok || !c.pageIsServed() {
		return &refusal{problem: problem{
			name: "no-such-resource", Status: http.StatusNotFound, Title: "no such resource",
			Detail: "the page has no file " + quoted(c.variable),
		}}
	}
	return c.sendFile(f)
}

// sendFile answers with a file of the page, or that the browser's copy is the same.
func (c *call) sendFile(f *page.File) error {
	header := c.w.Header()
	page.Confine(header)
	header.Set("ETag", f.Tag)
	if c.r.Header.Get("If-None-Match") == f.Tag {
		header.Set("Cache-Control", "no-cache")
		c.answered = true
		c.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return c.sendCached(http.StatusOK, f.Type, f.Text, "no-cache")
}

// login is POST /page/session: it exchanges a token for the cookie of a session.
func (c *call) login() error {
	var m mistakes
	c.query(&m)
	const most = 1 << 10 // the caller is unknown, so nothing counts a longer body
	if c.r.ContentLength < 0 || c.r.ContentLength > most {
		return &refusal{problem: problem{
			name: "too-large", Status: http.StatusRequestEntityTooLarge, Title: "the body is too large",
			Detail: fmt.Sprintf("a login has a Content-Length of at most %d bytes", most),
		}}
	}
	var asked struct {
		Token string `json:"token"`
	}
	c.body(&asked, &m)
	switch {
	case asked.Token == "" && !m.in("token"):
		m.addf("\"token\" is missing: lk token new makes one")
	case c.api.gate.Open():
		m.addf("this server asks for no tokens: there is nothing to log in to")
	}
	if err := m.err(); err != nil {
		return err
	}
	pass, err := c.api.gate.Admit(access.Credentials{Token: asked.Token, From: c.r.RemoteAddr})
	if err != nil {
		if p := problemOf(err); p.Status == http.StatusForbidden {
			return unauthenticated(p.Detail, "Bearer")
		}
		return err
	}
	browser, cookie, err := c.api.browsers.Begin(pass.Name(), asked.Token, c.r.TLS != nil)
	if err != nil {
		return err
	}
	if old := c.api.browsers.Of(c.r); old != nil {
		old.End()
	}
	http.SetCookie(c.w, cookie)
	c.pass, c.browser, c.own = pass, browser, pass.Engine()
	return c.browserSession()
}

// A sessionAnswer is what the page needs to know, besides the fields of GET /v1/server.
type sessionAnswer struct {
	Guarded bool                     `json:"guarded"`           // the server asks for tokens or certificates
	May     map[access.Verb][]string `json:"may"`               // where the identity may do what; "*": everywhere
	Action  string                   `json:"action,omitempty"`  // the token for page.ActionHeader
	Left    seconds                  `json:"left,omitempty"`    // of a session
	Cluster bool                     `json:"cluster,omitempty"` // GET /v1/cluster answers this identity
	Failed  string                   `json:"failed,omitempty"`  // why fields of the engine are missing
}

// browserSession is GET /page/session.
func (c *call) browserSession() error {
	var m mistakes
	c.query(&m)
	if err := m.err(); err != nil {
		return err
	}
	answer, err := c.describe()
	more := sessionAnswer{Guarded: !c.api.gate.Open(), May: make(map[access.Verb][]string)}
	for _, v := range []access.Verb{access.Look, access.Revoke, access.Freeze} {
		more.May[v] = c.pass.Reach(v)
	}
	more.Cluster = c.api.options.Cluster != nil && c.pass.SeesEverything()
	if c.browser != nil {
		more.Action, more.Left = c.browser.Action(), seconds(c.browser.Left())
	}
	if err != nil {
		more.Failed = problemOf(err).Detail
	}
	text, err := json.Marshal(more)
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		return err
	}
	return c.write(http.StatusOK, answer)
}

// logout is DELETE /page/session. It also succeeds for a browser that has no session, such as one
// with a certificate.
func (c *call) logout() error {
	var m mistakes
	c.query(&m)
	if err := m.err(); err != nil {
		return err
	}
	if c.browser != nil {
		c.browser.End()
	}
	http.SetCookie(c.w, page.Forgotten(c.r.TLS != nil))
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// errForged returns the refusal of a request that has the cookie of a session, and does not come
// from its page.
func errForged() error {
	return &refusal{problem: problem{
		name: "cross-origin", Status: http.StatusForbidden, Title: "not from the page",
		Detail: "the request has the cookie of a browser's session, but does not come from the page: an action needs the " +
			"header " + page.ActionHeader + ", and programs send a token instead of the cookie",
	}}
}

func errLoggedOut() error {
	return &lockkeeper.Error{Err: lockkeeper.ErrDenied, Detail: "the browser has logged out, or its session has ended"}
}
