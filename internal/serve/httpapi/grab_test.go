package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// village is one engine and one server of it, whose every exchange is held against
// the OpenAPI document.
type village struct {
	*testing.T
	engine lockkeeper.Engine
	gate   *access.Gate
	url    string
	client *http.Client
}

func newVillage(t *testing.T) *village {
	t.Helper()
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	return villageOf(t, e)
}

// villageOf is another server of an engine.
func villageOf(t *testing.T, e lockkeeper.Engine) *village {
	t.Helper()
	return villageUnder(t, e, nil)
}

// villageUnder is a server with a policy.
func villageUnder(t *testing.T, e lockkeeper.Engine, p *access.Policy) *village {
	t.Helper()
	v := villageBehind(t, access.New(e, p, access.Options{}), Options{Version: "v1.2.3", Drain: func(string) {}})
	v.engine = e
	return v
}

// villageBehind is a server with options of its own.
func villageBehind(t *testing.T, g *access.Gate, o Options) *village {
	t.Helper()
	v := &village{T: t, gate: g}
	s := httptest.NewUnstartedServer(nil)
	s.Config = New(g, o).Server()
	s.Start()
	t.Cleanup(s.Close)
	v.url, v.client = s.URL, s.Client()
	v.client.Transport = &witness{t: t, document: theDocument(t), next: v.client.Transport}
	return v
}

// reply is an answer.
type reply struct {
	code   int
	header http.Header
	text   string
	grab   grabAnswer
}

// ask sends one request; of a body that begins with "{" it says that it is JSON, of
// any other that it is a form. path is a URL's, escaped.
func (v *village) ask(method, path, body string, headers ...string) reply {
	v.Helper()
	return v.askIn(v.Context(), method, path, body, headers...)
}

func (v *village) askIn(ctx context.Context, method, path, body string, headers ...string) reply {
	v.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, v.url+path, strings.NewReader(body))
	if err != nil {
		v.Fatal(err)
	}
	switch {
	case strings.HasPrefix(body, "{"):
		r.Header.Set("Content-Type", "application/json")
	case body != "":
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := v.client.Do(r)
	if err != nil {
		return reply{text: err.Error()}
	}
	h := reply{code: answer.StatusCode, header: answer.Header, text: readAll(v.T, answer)}
	if h.code < 300 && strings.HasPrefix(h.text, `{"op":`) {
		if err := json.Unmarshal([]byte(h.text), &h.grab); err != nil {
			v.Errorf("%s %s: %s: %v", method, path, h.text, err)
		}
	}
	return h
}

// open waits until so many requests are waiting for a place.
func (v *village) open(n int) {
	v.Helper()
	late := time.After(20 * time.Second)
	for {
		in := v.gate.Ledger().Used(limits.Polls)
		if in == n {
			return
		}
		select {
		case <-late:
			v.Fatalf("%d requests wait, want %d", in, n)
		default:
			runtime.Gosched()
		}
	}
}

// UnmarshalJSON is for tests, which read durations only roughly.
func (s *seconds) UnmarshalJSON(text []byte) error {
	d, err := time.ParseDuration(string(text) + "s")
	*s = seconds(d)
	return err
}

func (v *village) grab(as, path string, more ...string) reply {
	v.Helper()
	return v.ask("POST", "/v1/grab/"+path+"?as="+url.QueryEscape(as)+strings.Join(more, ""), "")
}

// ok grabs, and must hold.
func (v *village) ok(as, path string, more ...string) grabAnswer {
	v.Helper()
	h := v.grab(as, path, more...)
	if h.code != 200 || h.grab.Status != "ok" || h.grab.Fence == 0 {
		v.Fatalf("%s grabs %s: %d %s, want ok", as, path, h.code, h.text)
	}
	return h.grab
}

// waits grabs, and must wait in that place; 0 stands for any.
func (v *village) waits(place int, as, path string, more ...string) grabAnswer {
	v.Helper()
	h := v.grab(as, path, more...)
	if h.code != 202 || h.grab.Status != "wait" || h.grab.Position == 0 || place != 0 && h.grab.Position != place {
		v.Fatalf("%s grabs %s: %d %s, want wait %d", as, path, h.code, h.text, place)
	}
	return h.grab
}

// released releases, and must have had so many.
func (v *village) released(want int, as, path string) {
	v.Helper()
	h := v.ask("DELETE", "/v1/grab/"+path+"?as="+as, "")
	if h.code != 200 || h.grab.Status != "ok" || h.grab.Released == nil || *h.grab.Released != want {
		v.Fatalf("%s releases %s: %d %s, want %d released", as, path, h.code, h.text, want)
	}
}

// refused asks, and must be refused so.
func (v *village) refused(code int, words string, method, path, body string, headers ...string) {
	v.Helper()
	h := v.ask(method, path, body, headers...)
	if h.code != code || !strings.Contains(h.text, words) || h.header.Get("Content-Type") != "application/problem+json" {
		v.Errorf("%s %s: %d %s; want %d with %q", method, path, h.code, h.text, code, words)
	}
}

// TestGrabAnswers: an answer has the blockers, the position, and the own holds that block the name;
// a look renews nothing, and needs no name.
func TestGrabAnswers(t *testing.T) {
	v := newVillage(t)
	if h := v.ask("GET", "/v1/grab/db", ""); h.code != 200 || h.grab.Status != "free" || *h.grab.Held != 0 {
		t.Errorf("%d %s, want free", h.code, h.text)
	}
	if h := v.ask("GET", "/v1/grab/db?as=me", ""); h.code != 200 || h.grab.Status != "none" {
		t.Errorf("%d %s, want none", h.code, h.text)
	}
	for _, query := range []string{"", "?as=me"} {
		if h := v.ask("HEAD", "/v1/grab/db"+query, ""); h.code != 200 || h.text != "" {
			t.Errorf("HEAD %s: %d %q, want what GET says, without its text", query, h.code, h.text)
		}
	}
	if n := v.ok("me", "db", "&ttl=30", "&note=a%20test").TTL; n != seconds(30*time.Second) {
		t.Errorf("it lives for %v, want 30 s", n)
	}
	a := v.waits(1, "you", "db/x")
	if len(a.BlockedBy) != 1 || a.BlockedBy[0].As != "me" || a.BlockedBy[0].Note != "a test" || a.OwnHolds != nil {
		t.Errorf("blocked by %v, want me", a.BlockedBy)
	}
	if a := v.waits(0, "me", "db/y"); len(a.OwnHolds) != 1 || a.OwnHolds[0] != "db" {
		t.Errorf("itself %v, want db", a.OwnHolds)
	}
	if h := v.ask("GET", "/v1/grab/db/x?as=you", ""); h.code != 200 || h.grab.Status != "wait" || h.grab.Position != 1 {
		t.Errorf("%d %s, want wait 1 with 200: a look asked for nothing", h.code, h.text)
	}
	if h := v.ask("GET", "/v1/grab/db", ""); h.grab.Status != "taken" || *h.grab.Held != 1 || *h.grab.Waiting != 2 {
		t.Errorf("%s, want one that holds, two that wait", h.text)
	}
	for body, want := range map[string]string{
		"":                        "ok ",
		"ttl=45s&priority=2":      "ok ",
		`{"ttl":45,"priority":3}`: "ok ",
	} {
		if h := v.ask("POST", "/v1/grab/db?as=me", body, "Accept", "text/plain"); !strings.HasPrefix(h.text, want) ||
			h.code != 200 {
			t.Errorf("%q: %d %q, want %q", body, h.code, h.text, want)
		}
	}
	if h := v.ask("POST", "/v1/grab/db/x?as=you", "", "Accept", "text/plain"); h.text != "wait 1\n" || h.code != 202 {
		t.Errorf("%d %q, want wait 1", h.code, h.text)
	}
	v.released(1, "me", "db/y")
	if h := v.ask("DELETE", "/v1/grab/db?as=me", "", "Accept", "text/plain"); h.text != "released 1\n" {
		t.Errorf("%q, want released 1", h.text)
	}
	v.ok("you", "db/x")
	for range 2 {
		if a := v.ok("p", "pool", "&limit=2"); a.Slot != 1 {
			t.Errorf("slot %d, want 1", a.Slot)
		}
	}
	if h := v.ask("POST", "/v1/grab/pool?as=q", "limit=2", "Accept", "text/plain"); !strings.HasSuffix(h.text, " 2\n") {
		t.Errorf("%q, want slot 2", h.text)
	}
	v.ok("several", "s/1", "&also=s/2", "&also=s/3")
	v.waits(1, "other", "s/3")
	v.ok("reader", "book", "&shared")
	v.ok("reader too", "book", "&shared=1")
}

// TestGrabWaits: a request may stay open until the grant; after the client has gone, the claim
// lives for its TTL.
func TestGrabWaits(t *testing.T) {
	v := newVillage(t)
	v.ok("me", "db")
	began := time.Now()
	if a := v.waits(1, "you", "db", "&wait=50ms"); time.Since(began) < 50*time.Millisecond ||
		a.TTL < seconds(time.Minute) {
		t.Errorf("answered after %s, with %v to live; want it to wait", time.Since(began), a.TTL)
	}
	waiting := make(chan reply)
	go func() { waiting <- v.ask("POST", "/v1/grab/db?as=you&wait=30s", "") }()
	v.open(1)
	v.released(1, "me", "db")
	if h := <-waiting; h.code != 200 || h.grab.Status != "ok" {
		t.Errorf("%d %s, want ok", h.code, h.text)
	}
	ctx, leave := context.WithCancel(t.Context())
	go func() { waiting <- v.askIn(ctx, "POST", "/v1/grab/db?as=they&wait=30s", "") }()
	v.open(1)
	leave()
	<-waiting
	if h := v.ask("GET", "/v1/grab/db?as=they", ""); h.grab.Status != "wait" {
		t.Errorf("%s, want that the place lives on", h.text)
	}
	v.refused(400, "0 to 1m", "POST", "/v1/grab/db?as=you&wait=2m", "")
}

// TestGrabLost: one repeat reports how an earlier hold ended, and queues again.
func TestGrabLost(t *testing.T) {
	v := newVillage(t)
	ref := *v.ok("me", "db").Claim
	ops, err := v.engine.Attach(t.Context(), lockkeeper.Session{ID: "ops", TTL: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = v.engine.End(t.Context(), ops.Key, lockkeeper.Ending{
		Kind: lockkeeper.Revoke, Ref: ref, Force: true, Label: lockkeeper.Label{As: "ops", Note: "new disks"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if h := v.ask("GET", "/v1/grab/db?as=me", ""); h.grab.Status != "none" || !strings.Contains(h.grab.Lost, "revoked") {
		t.Errorf("%s, want that it was revoked", h.text)
	}
	if a := v.ok("me", "db"); !strings.Contains(a.Lost, "new disks") {
		t.Errorf("lost %q, want why", a.Lost)
	}
	if a := v.ok("me", "db"); a.Lost != "" {
		t.Errorf("lost %q, want it told once", a.Lost)
	}
}

// TestGrabPathSpellings are T3.6 c and h.
func TestGrabPathSpellings(t *testing.T) {
	v := newVillage(t)
	v.ok("holder", "db")
	v.refused(400, `parameter \"until\"`, "DELETE", "/v1/grab/db?as=stranger&until=99999999999", "")
	v.released(0, "stranger", "db")
	if h := v.ask("GET", "/v1/grab/db?as=holder", ""); h.grab.Status != "ok" {
		t.Errorf("%s, want the holder unharmed", h.text)
	}

	v.ok("W", "a/1")
	fence := v.ok("me", "q").Fence
	if a := v.ok("me", "q/"); a.Fence != fence || a.Path != "q" {
		t.Errorf("q/ is %s with fence %d, want q with %d", a.Path, a.Fence, fence)
	}
	v.waits(1, "you", "/q")
	v.waits(0, "you", "a//1") // where W is
	for _, none := range []string{"", "/", ".", "..", "a/../b", "%2e%2e", "x%00y", "x%ff"} {
		v.refused(400, "problems/invalid", "POST", "/v1/grab/"+none+"?as=me", "")
	}
	v.refused(404, "no-such-resource", "POST", "/v1/grab?as=me", "")
	v.ok("me", "a%2Fb") // in a URL this is the path a/b
	v.waits(1, "you", "a/b")
	v.ok("me", "http://example.com/a%3Fb")
}

// TestGrabRefusesWrongInput is T3.6 f: refused with words, and the server lives.
func TestGrabRefusesWrongInput(t *testing.T) {
	v := newVillage(t)
	for query, words := range map[string]string{
		"as=me&op=__proto__":             `parameter \"op\"`,
		"as=me&op=toString":              `parameter \"op\"`,
		"as=me&until=abc":                `parameter \"until\"`,
		"as=me&until=0":                  `parameter \"until\"`,
		"as=me&ttl=-1":                   "is not a duration",
		"as=me&ttl=1e400":                "is not a duration",
		"as=me&ttl=0":                    "", // is as none
		"as=me&for=999999999999999":      "is not a duration",
		"as=me&for=9999w":                "out of range",
		"":                               "no name: add as=NAME",
		"as=":                            "no name: add as=NAME",
		"as=me&as=you":                   "2 times",
		"as=" + strings.Repeat("x", 129): "129 bytes",
		"as=%00":                         "control characters",
		"as=me&priority=high":            "not a number",
		"as=me&priority=9999999":         "out of range",
		"as=me&shared=perhaps":           "write 1 or true, 0 or false",
		"as=me&shared=1&limit=2":         "exclude each other",
		"as=me&units=2":                  "units need a limit",
		"as=me&limit=0":                  "out of range",
		"as=me&limit=2&units=3":          "3 units",
		"as=me&also=db":                  "named twice",
		"as=me&also=":                    "names nothing",
		"as=me;x":                        "query",
		"as=%zz":                         "query",
	} {
		if words == "" {
			if h := v.ask("POST", "/v1/grab/db?"+query, ""); h.code != 200 {
				t.Errorf("%s: %d %s, want ok", query, h.code, h.text)
			}
			continue
		}
		v.refused(400, words, "POST", "/v1/grab/db?"+query, "")
	}
	for body, code := range map[string]int{
		`{"as":"me","ttl":"x"}`:  400,
		`{"as":"me","as":"you"}`: 400,
		`{"as":1}`:               400,
		`{"op":"grab"}`:          400,
		`{"ttl":1e999}`:          400,
		`{`:                      400,
		`{"as":null}`:            400,
	} {
		v.refused(code, "problems/invalid", "POST", "/v1/grab/db", body)
	}
	v.refused(400, "2 times", "POST", "/v1/grab/db?as=me", "as=you")
	v.refused(415, "media-type", "POST", "/v1/grab/db?as=me", "as=you", "Content-Type", "text/plain")
	v.refused(413, "too-large", "POST", "/v1/grab/db?as=me", strings.Repeat("x", maxBody+1))
	v.refused(414, "too-large", "POST", "/v1/grab/db?as="+strings.Repeat("x", maxURL), "")
	v.refused(400, "no body", "DELETE", "/v1/grab/db?as=me", "as=me")
	for _, method := range []string{"PUT", "LOCK", "OPTIONS", "BREW"} {
		v.refused(405, "DELETE, GET, HEAD, PATCH, POST", method, "/v1/grab/db?as=me", "")
	}
	if h := v.ask("POST", "/v1/grab/a/../b?as=me&priority=x", ""); h.code != 400 ||
		!strings.Contains(h.text, `\"..\" is not allowed`) || strings.Contains(h.text, "targets") {
		t.Errorf("%d %s, want what is wrong with the path, and not that there is none", h.code, h.text)
	}
	for _, path := range []string{"/ui", "/ui/", "/ui/index.html", "/ui/404", "/v1", "/v1/grab", "//"} {
		v.refused(404, "no-such-resource", "GET", path, "")
	}
	v.refused(400, `\"op\": allowed are as, also; unknown parameter \"until\"`, "GET", "/v1/grab/db?op=x&until=y", "")
	if h := v.ask("GET", "/v1/grab/db?as="+strings.Repeat("x", 1<<20),
		""); h.code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a query of 1 MiB: %d %s", h.code, h.text)
	}
	v.ok("a/name/with?all&that", "fine")
}

// TestGrabWhileDraining is T3.6 a.
func TestGrabWhileDraining(t *testing.T) {
	v := newVillage(t)
	fence := v.ok("holder", "db").Fence
	v.waits(1, "waiter", "db")
	v.gate.Drain("an update")
	if a := v.ok("holder", "db"); a.Fence != fence || !a.Draining {
		t.Errorf("%+v, want the hold refreshed, and that it is told", a)
	}
	if a := v.waits(1, "waiter", "db"); !a.Draining {
		t.Errorf("%+v, want that it is told", a)
	}
	v.refused(503, "problems/draining", "POST", "/v1/grab/db?as=new", "")
	v.refused(503, "problems/draining", "LOCK", "/v1/terraform/db", lockBody("new", "me"))
	v.released(1, "holder", "db")
	v.ok("waiter", "db")
	v.refused(503, "problems/draining", "POST", "/v1/grab/elsewhere?as=new", "")
	v.released(1, "waiter", "db")
	if all := v.held(""); len(all) != 0 {
		t.Errorf("left: %v", all)
	}
}

// TestPathWithPercentSign: a URL is decoded once, and lk and Go decode nothing.
func TestPathWithPercentSign(t *testing.T) {
	v := newVillage(t)
	if a := v.ok("me", "a%250Ab"); a.Path != "a%0Ab" {
		t.Errorf("it has %q", a.Path)
	}
	v.refused(400, `put the text \"%0A\" in its place, which is not decoded`, "POST", "/v1/grab/a%0Ab?as=me", "")
}
