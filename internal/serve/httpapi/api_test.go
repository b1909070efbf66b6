package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// TestRequestsOutsideTheRoutes: what no route is asked about is refused with a problem.
func TestRequestsOutsideTheRoutes(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	s := httptest.NewUnstartedServer(nil)
	s.Config = New(access.New(e, nil, access.Options{}), Options{}).Server()
	s.Start()
	defer s.Close()
	for name, c := range map[string]struct {
		method, path, header, value string
		status                      int
		says                        string
	}{
		"another path":   {"GET", "/v2", "", "", 404, "no-such-resource"},
		"a page":         {"POST", "/v1/claims", "Origin", "http://evil.example", 403, "cross-origin"},
		"another's name": {"GET", "/v1/claims", "Host", "evil.example", 421, "evil.example"},
		"a long URL":     {"GET", "/" + strings.Repeat("a", maxURL), "", "", 414, "too-large"},
	} {
		r, err := http.NewRequest(c.method, s.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.header == "Host" {
			r.Host = c.value
		} else if c.header != "" {
			r.Header.Set(c.header, c.value)
		}
		answer, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text := readAll(t, answer)
		if answer.StatusCode != c.status || !strings.Contains(text, c.says) ||
			answer.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s, want %d and %q", name, answer.StatusCode, text, c.status, c.says)
		}
	}
}
