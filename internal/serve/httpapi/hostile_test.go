package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// badBodies are bodies of POST /v1/claims with a mistake, and a part of the answer.
var badBodies = map[string]string{
	`{}`:                                    "no target: give",
	`[]`:                                    "not a JSON object",
	`null`:                                  "not a JSON object",
	`{"path":"db"`:                          "not JSON",
	`{"path":"db"} {}`:                      "the body is not JSON: byte 15 is not valid",
	`{"path":"db","path":"db"}`:             "given twice",
	`{"Path":"db"}`:                         `unknown key "Path"`,
	`{"path":"db","waits":3}`:               `unknown key "waits": allowed are as,`,
	`{"targets":[{"path":"db","way":"x"}]}`: `unknown key "targets[].way"`,
	`{"targets":[{"path":"a"},{"path":"a"}]}`:                     "named twice",
	`{"targets":{"path":"a"}}`:                                    "it must be",
	`{"targets":[[[[]]]]}`:                                        "it must be",
	`{"path":"db","targets":[{"path":"a"}]}`:                      "exclude targets",
	`{"path":null}`:                                               "leave out what has no value",
	`{"path":7}`:                                                  "path is the number 7: it must be text",
	`{"path":"db","mode":"mine"}`:                                 "none of exclusive, shared, permits",
	`{"path":"db","ttl":NaN}`:                                     "not JSON",
	`{"path":"db","ttl":1e400}`:                                   "ttl \"1e400\" is neither a number of seconds",
	`{"path":"db","ttl":-1}`:                                      "neither a number of seconds",
	`{"path":"db","ttl":0}`:                                       "out of range: 1s to 10 years",
	`{"path":"db","ttl":"soon"}`:                                  "ttl \"soon\" is not a duration: write 30s, 5m or 2d",
	`{"path":"db","ttl":true}`:                                    "neither a number of seconds",
	`{"path":"db","wait":"11y"}`:                                  "a number of seconds; or \"forever\"",
	`{"path":"db","wait":"forever","ttl":"a","expected":-1}`:      "a number of seconds; expected \"-1\" is neither",
	`{"path":"db","wait":1e9}`:                                    "out of range",
	`{"path":"db","priority":1.5}`:                                "a whole number",
	`{"path":"db","priority":99999999}`:                           "out of range",
	`{"path":"db","limit":-1}`:                                    "out of range",
	`{"path":"db","limit":0}`:                                     "db: limit 0 is out of range: 1 to 1073741824",
	`{"path":"db","limit":0,"mode":"exclusive"}`:                  "units and limit go with permits only",
	`{"targets":[{"path":"a"},{"path":"b","limit":0}]}`:           "b: limit 0 is out of range",
	`{"path":"db","limit":3,"units":0}`:                           "db: 0 units are out of range: 1 to the limit, 3",
	`{"path":"db","mode":"permits"}`:                              "db: limit 0 is out of range",
	`{"path":"db","units":0}`:                                     "units and limit go with permits only",
	`{"path":"db","units":0,"targets":[{"path":"a"}]}`:            "exclude targets",
	`{"path":"db","units":2}`:                                     "units and limit go with permits only",
	`{"path":"db","steal":"now"}`:                                 `write "ask"`,
	`{"path":"db","soft":true,"steal":"ask"}`:                     "exclude each other",
	`{"path":"db","quiet_period":"5s"}`:                           "longer than wait",
	`{"path":"db","quiet_period":"5s","wait":4}`:                  "longer than wait",
	`{"path":"../db"}`:                                            "is not allowed",
	`{"path":"` + strings.Repeat("a/", 16) + `a"}`:                "17 segments",
	`{"path":"a\u0000b"}`:                                         "control character",
	`{"path":"\ud83d"}`:                                           "half of a surrogate pair",
	"{\"path\":\"a\xff\"}":                                        "not UTF-8",
	`{"path":"db","as":"` + strings.Repeat("x", 129) + `"}`:       "129 bytes",
	`{"targets":[` + strings.Repeat(`{"path":"a"},`, 64) + `{}]}`: "65 targets",
}

// TestBadBodies: the API refuses a body with a mistake, names the mistake, and makes nothing.
func TestBadBodies(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		for body, says := range badBodies {
			a := w.ask("POST", "/v1/claims", body)
			if a.status != 400 || a.Type != "invalid" || !strings.Contains(a.Detail, says) {
				t.Errorf("%s: %d %s, want 400 and %q", body, a.status, a.text, says)
			}
		}
		big := `{"path":"db","note":"` + strings.Repeat("x", maxBody) + `"}`
		w.want(w.ask("POST", "/v1/claims", big), 413, "too-large")
		w.want(w.ask("POST", "/v1/claims", `{"path":"db"}`, "Content-Type: text/plain"), 415, "media-type")
		w.want(w.ask("POST", "/v1/claims", `{"path":"db"}`, "Content-Type: application/x-www-form-urlencoded"), 415,
			"media-type")
		w.want(w.ask("POST", "/v1/claims", `{"path":"db"}`, "Idempotency-Key: "+strings.Repeat("k", maxKey+1)), 400,
			"invalid")
		w.want(w.ask("GET", "/v1/claims", `{}`), 400, "invalid")
		w.want(w.ask("GET", "/v1/claims?path=%ff", ""), 400, "invalid")
		w.want(w.ask("GET", "/v1/claims/x.1?poll=2m", ""), 400, "invalid")
		w.want(w.ask("GET", "/v1/claims/x.1?change=-1", ""), 400, "invalid")
		if a := w.want(w.ask("PUT", "/v1/claims", `{}`), 405, "method"); a.header.Get("Allow") != "GET, HEAD, POST" {
			t.Errorf("Allow: %s", a.header.Get("Allow"))
		}
		if !w.free() {
			t.Error("something was made")
		}
	})
}

// wrongRequests are requests with several mistakes, and the detail of the answer.
var wrongRequests = []struct{ method, url, body, detail string }{
	{"POST", "/v1/claims", `{"path":"../x","ttl":"zz","mode":"foo"}`,
		`ttl "zz" is not a duration: write 30s, 5m or 2d, or a number of seconds; ` +
			`mode "foo" is none of exclusive, shared, permits; path "../x": the segment ".." is not allowed: write the ` +
			`path in full`},
	{"POST", "/v1/claims", `{"path":5}`, `path is the number 5: it must be text`},
	{"POST", "/v1/claims", `{"path":"a","targets":[{"path":5,"mode":7}],"wiat":[{}],"note":{"a":"}"},"soft":"yes"}`,
		`targets[].path is the number 5: it must be text; targets[].mode is the number 7: it must be text; ` +
			`unknown key "wiat": allowed are as, expected, grace, limit, link, max_hold, mode, note, path, priority, ` +
			`quiet_period, soft, steal, steal_after, targets, ttl, units, wait; ` +
			`note is an object: it must be text; soft is text: it must be true or false; ` +
			`path, mode, units and limit exclude targets: put them into one of the targets`},
	{"POST", "/v1/claims?poll=2h&wait=1", `{"quiet_period":"5s","wait":true,"steal":"now","limit":1.5}`,
		`unknown parameter "wait": allowed are poll; wait "true" is neither a number of seconds, such as 1.5, nor ` +
			`text such as "30s"; or "forever"; ` +
			`limit is the number 1.5: it must be a whole number; steal "now": write "ask", or give steal_after, after ` +
			`which the lock is taken; ` +
			`poll "2h" is out of range: 0 to 1m0s; ask again after that`},
	{"POST", "/v1/claims", `{"targets":[{"path":".."},{"path":"a/../b"}],"priority":9999999,"ttl":0}`,
		`path "..": the segment ".." is not allowed: write the path in full; path "a/../b": the segment ".." is not ` +
			`allowed: write the path in full; ` +
			`priority 9999999 is out of range: -1000000 to 1000000; TTL 0s is out of range: 1s to 10 years`},
	{"GET", "/v1/claims?path=..&state=gone&limit=0&who=me", "",
		`unknown parameter "who": allowed are path, session, state, limit; path "..": the segment ".." is not ` +
			`allowed: write the path in full; ` +
			`state "gone" is none of waiting, held, frozen; limit "0" is out of range: 1 to 10000`},
	{"PATCH", "/v1/claims/x?poll=x", `{"priority":"high","steal":"now"}`,
		`claim "x": a claim is written as its session, a dot and its number, such as "k3v9.1"; ` +
			`priority is text: it must be a whole number; poll "x" is not a duration: write 30s, 5m or 2d, or a number ` +
			`of seconds`},
	{"POST", "/v1/claims/x/renew?poll=x&change=y", "",
		`claim "x": a claim is written as its session, a dot and its number, such as "k3v9.1"; ` +
			`poll "x" is not a duration: write 30s, 5m or 2d, or a number of seconds; change "y" is not a number: give ` +
			`the change of the latest answer`},
	{"PUT", "/v1/freezes/..?x=1", `{"as":1}`, `unknown parameter "x": none is allowed here; ` +
		`as is the number 1: it must be text; path "..": the segment ".." is not allowed: write the path in full; ` +
		`"for" is missing: give a duration, such as "30m"; DELETE ends the freeze earlier`},
	{"DELETE", "/v1/freezes/..?x=1", "",
		`unknown parameter "x": allowed are all, as, note, link; ` +
			`path "..": the segment ".." is not allowed: write the path in full`},
	{"POST", "/v1/drain?x=1", `{"reason":false}`,
		`unknown parameter "x": none is allowed here; reason is false: it must be text`},
	{"POST", "/v1/grab/..?shared=maybe&x=1", `{"as":5,"ttl":"zz"}`,
		`as is the number 5: it must be text; ` +
			`ttl "zz" is not a duration: write 30s, 5m or 2d, or a number of seconds; unknown parameter "x": ` +
			`allowed are as, also, shared, limit, units, ttl, for, priority, note, link, wait, fence; shared "maybe": ` +
			`write 1 or true, 0 or false; ` +
			`path "..": the segment ".." is not allowed: write the path in full`},
	{"LOCK", "/v1/terraform/..?ttl=x", `{"ID":""}`,
		`path "..": the segment ".." is not allowed: write the path in full; ` +
			`ttl "x" is not a duration: write 30s, 5m or 2d, or a number of seconds; ID "" is not valid: Terraform's IDs ` +
			`have 1 to 128 bytes without spaces`},
}

// TestAllMistakesAreNamed: on every route, one answer names everything that is wrong with the
// request, in terms of the API.
func TestAllMistakesAreNamed(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		for _, c := range wrongRequests {
			if a := w.want(w.ask(c.method, c.url, c.body), 400, "invalid"); a.Detail != c.detail {
				t.Errorf("%s %s %s:\n%s, want\n%s", c.method, c.url, c.body, a.Detail, c.detail)
			}
		}
		many := w.want(w.ask("POST", "/v1/claims", "{"+strings.Repeat(`"x":1,`, 5000)+`"a":1}`), 400, "invalid")
		if len(many.Detail) > 4<<10 {
			t.Errorf("5000 mistakes take %d bytes", len(many.Detail))
		}
		foreign := w.want(w.ask("POST", "/v1/claims", `{"path":"db"}`, "Origin: http://evil.example"), 403, "cross-origin")
		if want := `the request comes from a page of "http://evil.example" and goes to "server0": a page may use only ` +
			`its own server; programs send no Origin`; foreign.Detail != want {
			t.Errorf("%s, want %s", foreign.Detail, want)
		}
		if !w.free() {
			t.Error("something was made")
		}
	})
}

// raw sends text over a connection of its own, all at once or a byte at a time, and
// returns the status line of the answer; "" if the connection was closed without one.
func (w *world) raw(text string, pause time.Duration) string {
	w.Helper()
	conn, err := w.dial(w.Context(), "", "server0")
	if err != nil {
		w.Fatal(err)
	}
	defer conn.Close()
	go func() {
		if pause == 0 {
			_, _ = io.WriteString(conn, text)
			return
		}
		for i := range len(text) {
			if _, err := io.WriteString(conn, text[i:i+1]); err != nil {
				return
			}
			idle(pause)
		}
	}()
	line, _ := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line)
}

// TestRawConnections: the server disconnects slow clients and clients that do not speak HTTP, in
// time.
func TestRawConnections(t *testing.T) {
	post := "POST /v1/claims HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n" +
		`{"path":"db"}`
	inMemory(t, 1, func(w *world) {
		for _, c := range []struct {
			name, text string
			pause      time.Duration
			want       string
			within     time.Duration
		}{
			{"a byte at a time", post, time.Millisecond, "HTTP/1.1 201 Created", time.Second},
			{"a header that takes too long", post, time.Second, "HTTP/1.1 400 Bad Request", headerTimeout + time.Second},
			{"a body that takes too long", strings.Replace(post, "13", "9000", 1), 0, "HTTP/1.1 400 Bad Request",
				bodyTimeout + time.Second},
			{"a body that nobody wants", strings.NewReplacer("/v1/claims", "/v2", "13", "9000").Replace(post), 0, "anything",
				bodyTimeout + time.Second},
			{"no HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 0, "HTTP/1.1 400 Bad Request", time.Second},
			{"a long header", "GET /v1/claims HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 2*maxHeader) + "\r\n\r\n", 0,
				"HTTP/1.1 431 Request Header Fields Too Large", time.Second},
			{"two lengths", strings.Replace(post, "\r\n\r\n", "\r\nContent-Length: 2\r\n\r\n", 1), 0, "HTTP/1.1 400 Bad Request",
				time.Second},
			{"nothing at all", "", 0, "", headerTimeout + time.Second},
		} {
			began := time.Now()
			if got := w.raw(c.text, c.pause); got != c.want && c.want != "anything" || time.Since(began) > c.within {
				t.Errorf("%s: %q after %s, want %q within %s", c.name, got, time.Since(began), c.want, c.within)
			}
			w.want(w.ask("GET", "/v1/server", ""), 200, "")
			w.pass(time.Minute)
		}
	})
}

// TestPaths: one lock by any spelling, as the rules have it, and none by a wrong one.
func TestPaths(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		for at, frozen := range map[string]string{
			"a//b/":               "a/b",
			"a/b":                 "a/b",
			"a%2Fb":               "a/b",
			"a%252Fb":             "a%2Fb",
			"https://x.example/y": "https:/x.example/y",
			"w%C3%BC":             "wü",
		} {
			a := w.want(w.ask("PUT", "/v1/freezes/"+at, `{"for":60}`), 200, "")
			if string(a.Grants[0].Path) != frozen {
				t.Errorf("%s is frozen as %s, want %s", at, a.Grants[0].Path, frozen)
			}
		}
		for _, bad := range []string{"", "/", ".", "..", "a/../b", "a/%2E%2E/b", "%00", "%ff"} {
			w.want(w.ask("PUT", "/v1/freezes/"+bad, `{"for":60}`), 400, "invalid")
		}
	})
}

// FuzzHandlers: whatever is asked, the answer is one that the API has: no 500, no
// panic, and a problem that can be read where something is refused.
func FuzzHandlers(f *testing.F) {
	ref := "http-30s-key-" + strings.TrimPrefix(newSessionID(30*time.Second, "seed"), "http-30s-key-") + ".1"
	for _, seed := range [][4]string{
		{"POST", "/v1/claims?poll=1", `{"path":"db","ttl":"5s","wait":"forever","priority":3,"steal_after":1}`, "seed"},
		{"POST", "/v1/claims", `{"targets":[{"path":"a/b","mode":"shared"},{"path":"c","limit":3,"units":2}],"soft":true}`,
			""},
		{"GET", "/v1/claims?path=db&session=x&state=held&limit=3", "", ""},
		{"GET", "/v1/claims/" + ref + "?poll=1s&change=3", "", ""},
		{"POST", "/v1/claims/" + ref + "/renew?poll=1ms", "", ""},
		{"PATCH", "/v1/claims/" + ref, `{"mode":"shared","priority":9,"limit":2,"wait":1,"expected":3}`, ""},
		{"DELETE", "/v1/claims/" + ref, "", ""},
		{"POST", "/v1/claims/" + ref + "/revoke", `{"as":"me","note":"x","force":true}`, ""},
		{"GET", "/v1/why?path=db&limit=2", "", ""},
		{"GET", "/v1/stats?path=db", "", ""},
		{"GET", "/v1/events?path=db&last_event_id=a.1", "", ""},
		{"GET", "/v1/freezes", "", ""},
		{"PUT", "/v1/freezes/a//b", `{"for":"2d","note":"x"}`, ""},
		{"DELETE", "/v1/freezes/a/b", "", ""},
		{"GET", "/v1/server", "", ""},
		{"POST", "/v1/drain", `{"reason":"x","unless_version":"y"}`, ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	for _, r := range allRoutes() {
		method, path, _ := strings.Cut(r.pattern, " ")
		f.Add(method, strings.NewReplacer("{claim}", ref, "{path...}", "db").Replace(path)+"?as=me", `{"as":"me"}`, "")
	}
	f.Fuzz(func(t *testing.T, method, target, body, key string) {
		e := memlock.New()
		defer e.Close()
		api := New(access.New(e, nil, access.Options{}), Options{Drain: func(string) {}})
		defer api.stop()
		ask(t, api, "POST", "/v1/claims", `{"path":"db","mode":"shared"}`, "seed")
		ask(t, api, method, target, body, key)
		ask(t, api, method, target, body, key)
	})
}

// ask has the API answer a request, and checks the form of the answer.
func ask(t *testing.T, api *API, method, target, body, key string) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost", strings.NewReader(body))
	if err != nil {
		return
	}
	if r.URL, err = r.URL.Parse(target); err != nil || !strings.HasPrefix(target, "/") {
		return
	}
	r.RequestURI = target
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	media, text := w.Header().Get("Content-Type"), w.Body.String()
	bad := func(why string) { t.Errorf("%s %s %q: %d, %s: %s", method, target, body, w.Code, why, text) }
	switch {
	case w.Code == http.StatusInternalServerError:
		bad("a bug")
	case w.Code >= 400 && method != http.MethodHead:
		var p problem
		if err := json.Unmarshal([]byte(text), &struct {
			*problem
			ETA any `json:"eta"`
		}{problem: &p}); err != nil || p.Status != w.Code || !strings.HasPrefix(p.Type, problemType) || p.Detail == "" {
			bad(fmt.Sprint("no problem, ", media, " ", err))
		}
	case strings.HasPrefix(media, "application/json") && method != http.MethodHead && !json.Valid([]byte(text)):
		bad("not JSON")
	}
}
