package httpapi

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// TestFrontPage: a browser gets the page, which says nothing of the server by itself, and a program
// that asks for JSON gets the same as from /v1/server.
func TestFrontPage(t *testing.T) {
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	secret, digest := access.NewToken()
	policy := &access.Policy{
		Tokens: []access.Token{{Name: "ci", Digest: digest}},
		Rules:  []access.Rule{{Who: []string{"ci"}, May: []access.Verb{access.Look}, Paths: []string{"*"}}},
	}
	about := func(context.Context) (map[string]any, error) {
		return map[string]any{"held": int64(3), "waiting": int64(1)}, nil
	}
	for _, c := range []struct {
		name     string
		policy   *access.Policy
		accepts  string
		token    string
		code     int
		has, not []string
	}{
		{"a browser", nil, "text/html,application/xhtml+xml,*/*;q=0.8", "", 200,
			[]string{`src="/page/app.js"`, "<noscript>", `href="/v1/why"`}, []string{"v1<2", "alert"}},
		{"curl", nil, "*/*", "", 200, []string{"<title>Lockkeeper"}, nil},
		{"a program", nil, "application/json", "", 200, []string{`"version":"v1<2"`, `"held":3`, `"engine":"mem"`},
			[]string{"<html"}},
		{"an unknown browser", policy, "text/html", "", 200, []string{"<title>Lockkeeper"}, []string{"held", "v1<2"}},
		{"an unknown program", policy, "application/json", "", 401, []string{"authentication required"}, []string{"held"}},
		{"a known program", policy, "application/json", secret, 200, []string{`"held":3`}, nil},
	} {
		gate := access.New(e, c.policy, access.Options{})
		gate.Drain("<script>alert(1)</script>")
		v := villageBehind(t, gate, Options{Version: "v1<2", About: about})
		headers := []string{"Accept", c.accepts}
		if c.token != "" {
			headers = append(headers, "Authorization", "Bearer "+c.token)
		}
		h := v.ask("GET", "/", "", headers...)
		kind := h.header.Get("Content-Type")
		if h.code != c.code || h.code == http.StatusOK &&
			strings.HasPrefix(kind, "text/html") != strings.Contains(h.text, "<html") {
			t.Errorf("%s: %d, %s", c.name, h.code, kind)
		}
		for _, want := range c.has {
			if !strings.Contains(h.text, want) {
				t.Errorf("%s: no %q in %s", c.name, want, h.text)
			}
		}
		for _, bad := range c.not {
			if strings.Contains(h.text, bad) {
				t.Errorf("%s: %q in %s", c.name, bad, h.text)
			}
		}
	}
}

// A link to the page may have a query, such as chat programs add. A program's mistake is named.
func TestPageIgnoresQueries(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	v := villageBehind(t, access.New(e, nil, access.Options{}), Options{})
	v.client.Transport = nil // the API's document has no such parameters
	for accepts, code := range map[string]int{"text/html": http.StatusOK, "application/json": http.StatusBadRequest} {
		if h := v.ask("GET", "/?utm_source=chat", "", "Accept", accepts); h.code != code {
			t.Errorf("%s: %d, want %d: %s", accepts, h.code, code, h.text)
		}
	}
}
