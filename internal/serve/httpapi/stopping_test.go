package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// TestGrabWhileStopping: a grab that waits is answered as it stands when its server
// ends, and so is one that comes then.
func TestGrabWhileStopping(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		v := w.village()
		v.ok("me", "db", "&for=1h")
		began := time.Now()
		told := make(chan grabAnswer, 1)
		go func() { told <- v.waits(1, "you", "db", "&wait=50s") }()
		w.pass(10 * time.Second)
		w.apis[0].stop()
		if a := <-told; time.Since(began) != 10*time.Second || time.Duration(a.TTL) < time.Minute {
			t.Errorf("answered after %s with a place for %s", time.Since(began), time.Duration(a.TTL))
		}
		if v.waits(1, "you", "db", "&wait=50s"); time.Since(began) != 10*time.Second {
			t.Errorf("the next was open until %s", time.Since(began))
		}
	})
}

// TestGrabOfAWithdrawnPass: a waiting grab ends when the credentials of its client are withdrawn.
func TestGrabOfAWithdrawnPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret, digest := access.NewToken()
		p := &access.Policy{
			Rules:  []access.Rule{{Who: []string{"*"}, May: []access.Verb{access.Lock}, Paths: []string{"*"}}},
			Tokens: []access.Token{{Name: "ci", Digest: digest}},
		}
		e := memlock.New()
		defer e.Close()
		api := New(access.New(e, p, access.Options{}), Options{})
		defer api.stop()
		ask := func(as, query string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("POST", "/v1/grab/db?as="+as+query, nil)
			r.Header.Set("Authorization", "Bearer "+secret)
			to := httptest.NewRecorder()
			api.ServeHTTP(to, r)
			return to
		}
		if a := ask("me", "&for=1h"); a.Code != http.StatusOK {
			t.Fatal(a.Body)
		}
		told := make(chan *httptest.ResponseRecorder, 1)
		began := time.Now()
		go func() { told <- ask("you", "&wait=50s") }()
		idle(10 * time.Second)
		api.gate.Set(&access.Policy{Rules: p.Rules})
		if a := <-told; a.Code != http.StatusUnauthorized || time.Since(began) != 10*time.Second {
			t.Errorf("after %s: %d %s", time.Since(began), a.Code, a.Body)
		}
	})
}

// TestEventsOfAnEndedServer: a stream that is asked for when the server has ended
// already ends too.
func TestEventsOfAnEndedServer(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		w.apis[0].stop()
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		for _, last := range []string{"", ".0", ".18446744073709551615"} {
			stream := w.listen(ctx, "/v1/events", "Last-Event-ID: "+last)
			w.pass(time.Second)
			if text, _ := heard(t, stream); text != "ready, end" && text != "reset, ready, end" {
				t.Errorf("%s: told %q", last, text)
			}
		}
	})
}

// TestSlowReaderOfMetrics: a client that does not read the answer of another handler does not block
// the server.
func TestSlowReaderOfMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memlock.New()
		defer e.Close()
		wrote := make(chan error, 1)
		slow := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(make([]byte, 1<<20))
			wrote <- err
		})
		api := New(access.New(e, nil, access.Options{}), Options{Private: map[string]http.Handler{"GET /metrics": slow}})
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		s := api.Server()
		go s.Serve(l)
		defer s.Close()
		here, there := net.Pipe()
		defer here.Close()
		l.conns <- there
		began := time.Now()
		if _, err := here.Write([]byte("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-wrote:
			if err == nil || time.Since(began) != plainTimeout {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
		case <-time.After(time.Hour):
			t.Error("it still writes")
		}
	})
}
