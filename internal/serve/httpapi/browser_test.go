package httpapi

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/page"
)

// A surfer is a browser that sends requests to an API, with its cookies.
type surfer struct {
	*testing.T
	api     *API
	local   string // the server's address; "": 127.0.0.1
	tls     bool
	cookies []*http.Cookie
	action  string // sent with each request unless empty
}

// send returns the answer to a request. Headers are "Name: value".
func (b *surfer) send(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	b.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "localhost:7421"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if b.action != "" {
		r.Header.Set(page.ActionHeader, b.action)
	}
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	if b.tls {
		r.TLS = new(tls.ConnectionState)
	}
	at := "127.0.0.1"
	if b.local != "" {
		at = b.local
	}
	here := net.Addr(&net.TCPAddr{IP: net.ParseIP(at), Port: 7421})
	w := httptest.NewRecorder()
	b.api.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, here)))
	return w
}

// login logs in, and keeps the cookie and the action token.
func (b *surfer) login(secret string) *surfer {
	b.Helper()
	w := b.send("POST", "/page/session", `{"token":"`+secret+`"}`)
	var said sessionAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != 200 || said.Action == "" {
		b.Fatalf("login: %d %s", w.Code, w.Body)
	}
	b.cookies, b.action = w.Result().Cookies(), said.Action
	return b
}

// want fails the test unless a request gets the status code.
func (b *surfer) want(code int, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	b.Helper()
	w := b.send(method, path, body, headers...)
	if w.Code != code {
		b.Errorf("%s %s %q: %d, want %d: %s", method, path, headers, w.Code, code, w.Body)
	}
	return w
}

// A house is an API with the identities ops, who may do everything, and eye, who may look below a.
type house struct {
	*API
	acts     []access.Act
	ops, eye string // tokens
	policy   *access.Policy
}

func newHouse(t *testing.T) *house {
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	h := &house{policy: new(access.Policy)}
	add := func(name string, r access.Rule) string {
		secret, digest := access.NewToken()
		r.Who = []string{name}
		h.policy.Tokens = append(h.policy.Tokens, access.Token{Name: name, Digest: digest})
		h.policy.Rules = append(h.policy.Rules, r)
		return secret
	}
	h.ops = add("ops", access.Rule{
		May: []access.Verb{access.Look, access.Lock, access.Revoke, access.Freeze}, Paths: []string{"*"},
	})
	h.eye = add("eye", access.Rule{May: []access.Verb{access.Look}, Paths: []string{"b", "a"}})
	gate := access.New(e, h.policy, access.Options{Acted: func(a access.Act) { h.acts = append(h.acts, a) }})
	h.API = New(gate, Options{Version: "v1"})
	return h
}

func (h *house) browser(t *testing.T) *surfer { return &surfer{T: t, api: h.API} }

// TestPageIsConfined: each file of the page has headers that let a browser load nothing from
// elsewhere, show it in no frame, and guess no type.
func TestPageIsConfined(t *testing.T) {
	b := newHouse(t).browser(t)
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/page/app.js": "text/javascript; charset=utf-8",
		"/page/page.css": "text/css; charset=utf-8", "/page/icon.svg": "image/svg+xml",
	} {
		w := b.want(200, "GET", path, "")
		header := w.Result().Header
		if got := header.Get("Content-Type"); got != kind {
			t.Errorf("%s is %s, want %s", path, got, kind)
		}
		policy := header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'",
			"form-action 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: no %s in %s", path, part, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") ||
			header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Referrer-Policy") != "no-referrer" ||
			header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%s has the headers %v", path, header)
		}
		b.want(304, "GET", path, "", "If-None-Match: "+header.Get("ETag"))
		b.want(405, "POST", path, "{}")
	}
	for _, path := range []string{
		"/page/", "/page/none.js", "/page/..", "/page/../front.go", "/page/static/app.js", "/page",
	} {
		if w := b.send("GET", path, ""); w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// TestPageWithoutTokensIsForLoopback: a server without tokens serves its page to its own machine only,
// and to no host name that another site can bind to its address.
func TestPageWithoutTokensIsForLoopback(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	api := New(access.New(e, nil, access.Options{}), Options{})
	here, there := &surfer{T: t, api: api}, &surfer{T: t, api: api, local: "192.0.2.2"}
	here.want(200, "GET", "/page/app.js", "")
	here.want(200, "GET", "/page/session", "")
	here.want(421, "GET", "/", "", "Host: evil.example:7421")
	here.want(421, "GET", "/page/session", "", "Host: evil.example:7421")
	here.want(400, "POST", "/page/session", `{"token":"lk_x"}`)
	if w := there.want(200, "GET", "/", "", "Host: 192.0.2.2"); !strings.Contains(w.Body.String(), "own machine only") ||
		strings.Contains(w.Body.String(), "app.js") {
		t.Errorf("another machine gets %s", w.Body)
	}
	there.want(404, "GET", "/page/app.js", "", "Host: 192.0.2.2")
}

// TestLoginGivesACookieOfAnHour: a token opens a session, whose cookie no script and no other site can
// use, and which reads what the token reads.
func TestLoginGivesACookieOfAnHour(t *testing.T) {
	h := newHouse(t)
	for _, secure := range []bool{false, true} {
		b := h.browser(t)
		b.tls = secure
		b.want(401, "GET", "/page/session", "")
		b.want(401, "GET", "/v1/claims", "")
		b.login(h.ops)
		name := "lockkeeper"
		if secure {
			name = "__Host-lockkeeper"
		}
		c := b.cookies[0]
		if len(b.cookies) != 1 || c.Name != name || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode ||
			c.Secure != secure || c.MaxAge != 3600 || c.Path != "/" || c.Domain != "" || strings.Contains(c.Value, "lk_") {
			t.Errorf("TLS %t: the cookie is %v", secure, b.cookies)
		}
		b.want(200, "GET", "/v1/claims", "")
		if said := b.want(200, "GET", "/page/session", "").Body.String(); !strings.Contains(said, `"identity":"ops"`) ||
			strings.Contains(said, "lk_") {
			t.Errorf("the session is %s", said)
		}
	}
}

// TestLoginsAreRefused: what is no login of the page opens no session, and a wrong token is an act
// for the audit log.
func TestLoginsAreRefused(t *testing.T) {
	h := newHouse(t)
	b := h.browser(t)
	good := `{"token":"` + h.ops + `"}`
	b.want(401, "POST", "/page/session", `{"token":"lk_wrong"}`)
	if len(h.acts) != 1 || h.acts[0].Verb != access.Connect || h.acts[0].Err == nil {
		t.Errorf("the acts are %v", h.acts)
	}
	b.want(400, "POST", "/page/session", `{}`)
	b.want(400, "POST", "/page/session", `{"token":1}`)
	b.want(400, "POST", "/page/session", good[:len(good)-1])
	b.want(400, "POST", "/page/session?token=x", good)
	b.want(413, "POST", "/page/session", good+strings.Repeat(" ", 2000))
	b.want(415, "POST", "/page/session", "")
	b.want(415, "POST", "/page/session", good, "Content-Type: text/plain")
	b.want(403, "POST", "/page/session", good, "Origin: https://evil.example")
	b.want(403, "POST", "/page/session", good, "Sec-Fetch-Site: cross-site")
	b.want(403, "POST", "/page/session", good, "Sec-Fetch-Site: same-site")
	if got := h.browsers.Of(httptest.NewRequest("GET", "/", nil)); got != nil {
		t.Error("there is a session")
	}
}

// TestCookieAloneChangesNothing: an action needs the action token of the same session, and no page of
// another origin can use the cookie, even if a browser sent it.
func TestCookieAloneChangesNothing(t *testing.T) {
	h := newHouse(t)
	b, other := h.browser(t).login(h.ops), h.browser(t).login(h.ops)
	freeze := func(code int, action string, headers ...string) {
		t.Helper()
		b.action = action
		b.want(code, "PUT", "/v1/freezes/a", `{"for":"1m"}`, headers...)
	}
	mine := b.action
	freeze(403, "")
	freeze(403, "guess")
	freeze(403, other.action)
	freeze(403, mine, "Origin: https://evil.example")
	freeze(403, mine, "Sec-Fetch-Site: same-site")
	freeze(200, mine, "Sec-Fetch-Site: same-origin", "Origin: http://localhost:7421")
	b.action = ""
	for _, from := range []string{"same-site", "cross-site", "junk"} {
		b.want(403, "GET", "/page/session", "", "Sec-Fetch-Site: "+from)
		b.want(403, "GET", "/v1/claims", "", "Sec-Fetch-Site: "+from)
	}
	b.want(403, "DELETE", "/page/session", "")
	b.want(403, "POST", "/v1/claims", `{"path":"a"}`)
	b.want(201, "POST", "/v1/claims", `{"path":"z"}`, "Authorization: Bearer "+h.ops) // a program with a token
	b.want(200, "GET", "/page/session", "", "Sec-Fetch-Site: none")
}

// TestForgedCookiesAreNoSession: a cookie counts only if it is the one that a login gave, alone, and
// by the name that the connection demands.
func TestForgedCookiesAreNoSession(t *testing.T) {
	h := newHouse(t)
	b := h.browser(t).login(h.ops)
	c := b.cookies[0]
	for name, cookies := range map[string][]*http.Cookie{
		"another value":   {{Name: c.Name, Value: "x"}},
		"no value":        {{Name: c.Name}},
		"a long value":    {{Name: c.Name, Value: strings.Repeat("x", 4000)}},
		"two":             {c, {Name: c.Name, Value: "x"}},
		"another name":    {{Name: "__Host-lockkeeper", Value: c.Value}},
		"the token":       {{Name: c.Name, Value: h.ops}},
		"another's twice": {{Name: c.Name, Value: "y"}, c},
	} {
		b.cookies = cookies
		if w := b.send("GET", "/v1/claims", ""); w.Code != 401 {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	b.cookies, b.tls = []*http.Cookie{c}, true
	b.want(401, "GET", "/v1/claims", "")
	b.tls = false
	b.want(200, "GET", "/v1/claims", "")
}

// TestSessionEndsWithLogoutAndToken: after a logout, or when the token is revoked, the cookie opens
// nothing.
func TestSessionEndsWithLogoutAndToken(t *testing.T) {
	h := newHouse(t)
	b, eye := h.browser(t).login(h.ops), h.browser(t).login(h.eye)
	gone := b.want(204, "DELETE", "/page/session", "").Result().Cookies()
	if len(gone) != 1 || gone[0].MaxAge >= 0 || gone[0].Value != "" {
		t.Errorf("the cookie of a logout is %v", gone)
	}
	b.want(401, "GET", "/v1/claims", "")
	eye.want(200, "GET", "/v1/claims", "")
	h.policy.Tokens = slices.DeleteFunc(h.policy.Tokens, func(t access.Token) bool { return t.Name == "eye" })
	h.gate.Set(h.policy)
	eye.want(401, "GET", "/v1/claims", "")
}

// TestSessionSaysWhatItsIdentityMay: the page can show what exists for its reader, and which actions.
func TestSessionSaysWhatItsIdentityMay(t *testing.T) {
	h := newHouse(t)
	for secret, want := range map[string]map[access.Verb][]string{
		h.ops: {access.Look: {"*"}, access.Revoke: {"*"}, access.Freeze: {"*"}},
		h.eye: {access.Look: {"a", "b"}, access.Revoke: {}, access.Freeze: {}},
	} {
		var said sessionAnswer
		w := h.browser(t).login(secret).want(200, "GET", "/page/session", "")
		if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil {
			t.Fatal(err)
		}
		for verb, paths := range want {
			if !slices.Equal(said.May[verb], paths) {
				t.Errorf("it may %s at %v, want %v", verb, said.May[verb], paths)
			}
		}
		if !said.Guarded || said.Left <= 0 || time.Duration(said.Left) > page.SessionTime {
			t.Errorf("the session is %+v", said)
		}
	}
	eye := h.browser(t).login(h.eye)
	eye.want(403, "PUT", "/v1/freezes/a", `{"for":"1m"}`)
}

// TestThawHasAReason: the reason of a thaw is an act for the audit log.
func TestThawHasAReason(t *testing.T) {
	h := newHouse(t)
	b := h.browser(t).login(h.ops)
	b.want(200, "PUT", "/v1/freezes/a", `{"for":"1m","note":"disks"}`)
	b.want(400, "DELETE", "/v1/freezes/a?note="+strings.Repeat("x", 5000), "")
	b.want(204, "DELETE", "/v1/freezes/a?note=disks+are+back", "")
	last := h.acts[len(h.acts)-1]
	if last.Verb != access.Thaw || last.Label.Note != "disks are back" || last.Label.As != "ops" || last.Err != nil {
		t.Errorf("the act is %+v", last)
	}
}

// TestStreamEndsWithTheSession: a stream that a browser reads by its cookie ends with a logout, and
// after an hour.
func TestStreamEndsWithTheSession(t *testing.T) {
	for _, name := range []string{"logout", "hour"} {
		inMemory(t, 1, func(w *world) {
			_, _, ops, _ := w.guard()
			w.client.Transport = w.client.Transport.(*witness).next // openapi.json does not have the page
			secret := strings.TrimPrefix(ops, "Authorization: Bearer ")
			in := w.want(w.ask("POST", "/page/session", `{"token":"`+secret+`"}`), 200, "")
			cookie, _, _ := strings.Cut(in.header.Get("Set-Cookie"), ";")
			var said sessionAnswer
			if err := json.Unmarshal([]byte(in.text), &said); err != nil {
				t.Fatal(err)
			}
			events := w.listen(w.Context(), "/v1/events", "Cookie: "+cookie)
			if first := <-events; first.event != "" {
				first = <-events
			}
			if name == "logout" {
				w.want(w.ask("DELETE", "/page/session", "", "Cookie: "+cookie, page.ActionHeader+": "+said.Action), 204, "")
			}
			began := time.Now()
			for range events { // until it ends
			}
			lasted := time.Since(began)
			if name == "logout" && lasted > time.Second || lasted > page.SessionTime {
				t.Errorf("after the %s the stream lasted for %s", name, lasted)
			}
			w.want(w.ask("GET", "/v1/claims", "", "Cookie: "+cookie), 401, "unauthenticated")
		})
	}
}

// TestResumedEventsCountOn: the durations of an event count on while the event is kept for a client
// that resumes.
func TestResumedEventsCountOn(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		ctx, cut := context.WithCancel(w.Context())
		events := w.listen(ctx, "/v1/events")
		last := ""
		for s := range events {
			if s.event == "ready" {
				last = s.id
				break
			}
		}
		cut()
		w.holds(`{"path":"a","ttl":"1h"}`)
		w.pass(20 * time.Second)
		again, end := context.WithCancel(w.Context())
		defer end()
		for s := range w.listen(again, "/v1/events", "Last-Event-ID: "+last) {
			if s.event != "change" {
				continue
			}
			var st struct{ Age float64 }
			if err := json.Unmarshal([]byte(s.data), &st); err != nil || st.Age < 20 || st.Age > 21 {
				t.Errorf("the age is %v (%v): %s", st.Age, err, s.data)
			}
			break
		}
	})
}
