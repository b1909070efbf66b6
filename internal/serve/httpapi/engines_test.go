package httpapi

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/disklock"
	"github.com/lockkeeper/lockkeeper/engine/sqlitelock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// TestOnEngines: the same on engines that keep their claims on a disk, over real
// connections; on SQLite two servers have a process's handle each.
func TestOnEngines(t *testing.T) {
	t.Run("disk", func(t *testing.T) {
		t.Parallel()
		e, err := disklock.Open(t.Context(), filepath.Join(t.TempDir(), "locks"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() }) // after the servers
		play(t, e, e)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "locks.db")
		var both [2]lockkeeper.Engine
		for i := range both {
			e, err := sqlitelock.Open(t.Context(), file)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.Close() }) // after the servers
			both[i] = e
		}
		play(t, both[0], both[1])
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := testdb.SharedPostgres(t).Database(t)
		play(t, database(t, url), database(t, url))
	})
}

// twoServers serves two engines, as server0 and server1, over real connections.
func twoServers(t *testing.T, engines ...lockkeeper.Engine) *world {
	hosts := map[string]string{}
	for i, e := range engines {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := New(access.New(e, nil, access.Options{}), Options{}).Server()
		go s.Serve(l)
		t.Cleanup(func() { // streams end, or this would wait for them
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := s.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		})
		hosts[[]string{"server0", "server1"}[i]+":80"] = l.Addr().String()
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", hosts[address])
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &world{T: t, client: &http.Client{Transport: local{transport}}}
}

// play goes through the life of two claims at two servers.
func play(t *testing.T, engines ...lockkeeper.Engine) {
	w := twoServers(t, engines...)
	stream := w.listen(t.Context(), "/v1/events")
	held := w.holds(`{"path":"db","as":"first"}`)
	w.want(w.ask("POST", "/v1/claims", `{"path":"db"}`), 409, "not-acquired")
	told := make(chan answer, 1)
	go func() { told <- w.ask("POST", "/v1/claims?poll=30s", `{"path":"db","wait":"1m","as":"second"}`) }()
	for s := range stream { // until it is in line
		if strings.Contains(s.data, `"as":"second"`) {
			break
		}
	}
	at := held.header.Get("Location")
	for _, host := range []string{"server1", "server0", "server1"} {
		if a, err := w.try(t.Context(), host, "POST", at+"/renew", ""); err != nil || a.status != 200 ||
			a.Fence != held.Fence {
			t.Errorf("renewed at %s: %d %s (%v)", host, a.status, a.text, err)
		}
	}
	if a, err := w.try(t.Context(), "server0", "DELETE", at, ""); err != nil || a.status != 204 {
		t.Errorf("released: %d %s (%v)", a.status, a.text, err)
	}
	second := w.want(<-told, 201, "")
	if second.Fence <= held.Fence {
		t.Errorf("fence %d after %d", second.Fence, held.Fence)
	}
	if a, err := w.try(t.Context(), "server1", "DELETE", second.header.Get("Location"), ""); err != nil ||
		a.status != 204 {
		t.Errorf("released: %d %s (%v)", a.status, a.text, err)
	}
}

// local has every request name the host as the loopback address.
type local struct{ http.RoundTripper }

func (l local) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host = "127.0.0.1"
	return l.RoundTripper.RoundTrip(r)
}
