package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// A page whose name was bound to an address of the server is not the server's own, beyond
// loopback too.
func TestRequestsForForeignHostsAreRefused(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	open := access.New(e, nil, access.Options{})
	asksTokens := access.New(e, &access.Policy{}, access.Options{})
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const beyond, loopback = "192.0.2.2", "127.0.0.1"
	list := []string{"locks.example", "192.0.2.9"}
	for _, c := range []struct {
		gate    *access.Gate
		hosts   []string
		address string
		host    string
		refused bool
	}{
		{open, nil, beyond, "evil.example:7421", true},
		{open, nil, beyond, "evil.example.", true},
		{open, nil, beyond, "localhost.evil.example", true},
		{open, nil, beyond, "192.0.2.2:7421", false},
		{open, nil, beyond, "[2001:db8::1]:7421", false},
		{open, nil, beyond, "lockkeeper", false},
		{open, nil, beyond, own, false},
		{open, nil, loopback, "lockkeeper", true},
		{open, nil, loopback, "192.0.2.2", true},
		{open, nil, loopback, "LocalHost:7421", false},
		{open, nil, loopback, "[::1]", false},
		{open, list, beyond, "Locks.Example:7421", false},
		{open, list, beyond, "locks.example.", false},
		{open, list, beyond, "lockkeeper", true},
		{open, list, beyond, "evil.example", true},
		{open, list, loopback, "locks.example", false},
		{open, list, loopback, "localhost", false},
		{asksTokens, nil, beyond, "evil.example", false},
		{asksTokens, list, beyond, "evil.example", true},
		{asksTokens, list, beyond, "192.0.2.2", false},
	} {
		r := httptest.NewRequest("GET", "/openapi.json", nil)
		r.Host = c.host
		here := &net.TCPAddr{IP: net.ParseIP(c.address), Port: 7421}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(here)))
		w := httptest.NewRecorder()
		New(c.gate, Options{Hosts: c.hosts}).ServeHTTP(w, r)
		if refused := w.Code == http.StatusMisdirectedRequest; refused != c.refused ||
			refused && !strings.Contains(w.Body.String(), strings.TrimSuffix(c.host, ".")) {
			t.Errorf("host %s at %s, of %v, open: %t: %d %s", c.host, c.address, c.hosts, c.gate.Open(), w.Code, w.Body)
		}
	}
}
