package httpapi

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// guarded serves an engine in memory to one identity with the secret, and to nobody else.
func guarded(t *testing.T, bounds *limits.Bounds) (address, secret string, g *access.Gate) {
	t.Helper()
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	secret, digest := access.NewToken()
	g = access.New(e, &access.Policy{
		Rules:  []access.Rule{{Who: []string{"ci"}, May: []access.Verb{access.Look, access.Lock}, Paths: []string{"*"}}},
		Tokens: []access.Token{{Name: "ci", Digest: digest}},
	}, access.Options{Limits: bounds})
	healthy := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	s := httptest.NewUnstartedServer(nil)
	s.Config = New(g, Options{Open: map[string]http.Handler{"GET /healthz": healthy}}).Server()
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), secret, g
}

// A browser is one connection of a client.
type browser struct {
	*testing.T
	net.Conn
	in *bufio.Reader
}

func browse(t *testing.T, address string) *browser {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // a safety net
	return &browser{t, c, bufio.NewReader(c)}
}

// get returns the status of an answer; 0 if the server has closed the connection.
func (b *browser) get(path, secret string) int {
	b.Helper()
	header := ""
	if secret != "" {
		header = "Authorization: Bearer " + secret + "\r\n"
	}
	if _, err := io.WriteString(b, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n"+header+"\r\n"); err != nil {
		return 0
	}
	r, err := http.ReadResponse(b.in, nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, r.Body)
	r.Body.Close()
	return r.StatusCode
}

// isClosed waits until the server has closed the connection.
func (b *browser) isClosed() bool {
	_, err := b.in.ReadByte()
	return err == io.EOF
}

func TestConnectionWithoutCredentialsEndsWithItsAnswer(t *testing.T) {
	address, secret, g := guarded(t, nil)
	for path, status := range map[string]int{"/healthz": 200, "/v1/server": 401} {
		b := browse(t, address)
		if got := b.get(path, ""); got != status || !b.isClosed() {
			t.Errorf("%s: %d, want %d and the end of the connection", path, got, status)
		}
	}
	b := browse(t, address)
	for range 3 {
		if got := b.get("/v1/server", secret); got != 200 {
			t.Fatalf("with credentials: %d", got)
		}
	}
	if got := b.get("/healthz", ""); got != 200 || b.get("/v1/server", secret) != 200 {
		t.Errorf("a connection over which somebody was let in ends after /healthz (%d)", got)
	}
	if n := g.Ledger().Used(limits.HTTPConnections); n != 1 {
		t.Errorf("%d connections count, want 1", n)
	}
}

// TestFloodLeavesRoomForProbesAndClients: a flood of unauthenticated connections blocks neither
// probes nor clients.
func TestFloodLeavesRoomForProbesAndClients(t *testing.T) {
	address, secret, _ := guarded(t, nil)
	client := browse(t, address)
	if got := client.get("/v1/server", secret); got != 200 {
		t.Fatal(got)
	}
	first := browse(t, address)
	for range limits.MostHTTPArrivals + 50 { // they say nothing
		browse(t, address)
	}
	if got := browse(t, address).get("/healthz", ""); got != 200 {
		t.Errorf("/healthz: %d", got)
	}
	if got := browse(t, address).get("/v1/server", secret); got != 200 {
		t.Errorf("a client that comes later: %d", got)
	}
	if got := client.get("/v1/server", secret); got != 200 {
		t.Errorf("a client that was there before: %d", got)
	}
	if !first.isClosed() {
		t.Error("the oldest connection of the flood is still open")
	}
}

func TestHTTPConnectionsOfAnIdentityAreBounded(t *testing.T) {
	bounds := limits.DefaultBounds()
	bounds.Each[limits.HTTPConnections] = 2
	address, secret, g := guarded(t, &bounds)
	first, second, third := browse(t, address), browse(t, address), browse(t, address)
	if first.get("/v1/server", secret) != 200 || second.get("/v1/server", secret) != 200 {
		t.Fatal("two of two connections are refused")
	}
	if got := third.get("/v1/server", secret); got != http.StatusTooManyRequests || !third.isClosed() {
		t.Errorf("a third connection: %d, want 429 and its end", got)
	}
	first.Close()
	for hangs := time.Now().Add(time.Minute); g.Ledger().Used(limits.HTTPConnections) > 1; {
		if time.Now().After(hangs) {
			t.Fatal("a closed connection still counts")
		}
	}
	if got := browse(t, address).get("/v1/server", secret); got != 200 {
		t.Errorf("after one has gone: %d", got)
	}
}
