package httpapi

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// TestFrontPage: a browser is shown a page, whose texts are escaped, and a program that
// asks for JSON is told the same as by /v1/server. Who shows no credentials where they
// are asked for learns nothing.
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
			[]string{"<h1>Lockkeeper v1&lt;2</h1>", "3 held, 1 waiting.", `href="/openapi.json"`, "docs/http.md",
				"no new claims: &lt;script&gt;"}, []string{"<script>"}},
		{"curl", nil, "*/*", "", 200, []string{"<h1>Lockkeeper"}, nil},
		{"a program", nil, "application/json", "", 200, []string{`"version":"v1<2"`, `"held":3`, `"engine":"mem"`},
			[]string{"<h1>"}},
		{"a stranger", policy, "text/html", "", 200, []string{"<h1>Lockkeeper</h1>", "asks its clients for a token"},
			[]string{"held", "v1", "script"}},
		{"a strange program", policy, "application/json", "", 401, []string{"authentication required"}, []string{"held"}},
		{"a wrong token", policy, "text/html", "guess", 401, []string{"authentication required"}, []string{"held"}},
		{"one let in", policy, "text/html", secret, 200, []string{"3 held, 1 waiting."}, nil},
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
			strings.HasPrefix(kind, "text/html") != strings.Contains(h.text, "<h1>") {
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
