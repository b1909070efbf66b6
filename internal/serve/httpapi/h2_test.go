package httpapi

import (
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"

	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// Over HTTP/2 too a connection without credentials ends with its answer, and one over which
// somebody was let in goes on.
func TestHTTP2ConnectionWithoutCredentialsEnds(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	secret, digest := access.NewToken()
	g := access.New(e, &access.Policy{
		Rules:  []access.Rule{{Who: []string{"ci"}, May: []access.Verb{access.Look}, Paths: []string{"*"}}},
		Tokens: []access.Token{{Name: "ci", Digest: digest}},
	}, access.Options{})
	s := httptest.NewUnstartedServer(nil)
	s.Config, s.EnableHTTP2 = New(g, Options{}).Server(), true
	s.StartTLS()
	defer s.Close()
	ask := func(secret string) (reused bool) {
		r, err := http.NewRequest("GET", s.URL+"/v1/server", nil)
		if err != nil {
			t.Fatal(err)
		}
		if secret != "" {
			r.Header.Set("Authorization", "Bearer "+secret)
		}
		trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}
		answer, err := s.Client().Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
		if err != nil {
			t.Fatal(err)
		}
		readAll(t, answer)
		if answer.ProtoMajor != 2 {
			t.Fatalf("HTTP/%d", answer.ProtoMajor)
		}
		return reused
	}
	ask("")
	for ask("") { // as soon as the client has learnt of the end
	}
	for ask(secret) {
	}
	for range 3 {
		if !ask(secret) {
			t.Error("a connection over which somebody was let in ends")
		}
	}
}
