package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/disklock"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// BenchmarkPair measures a POST and a DELETE of a claim on a free path, without the network.
func BenchmarkPair(b *testing.B) {
	secret, digest := access.NewToken()
	policy := &access.Policy{
		Rules:  []access.Rule{{Who: []string{"ci"}, May: []access.Verb{access.Lock}, Paths: []string{"*"}}},
		Tokens: []access.Token{{Name: "ci", Digest: digest}},
	}
	for _, c := range []struct {
		name    string
		engine  func(testing.TB) lockkeeper.Engine
		policy  *access.Policy
		callers int // for each processor
	}{
		{"memory", newMemory, nil, 1},
		{"memory_identity", newMemory, policy, 1},
		{"disk_1_caller", newDisk, nil, 0},
		{"disk_64_callers", newDisk, nil, 32},
	} {
		b.Run(c.name, func(b *testing.B) {
			api := New(access.New(c.engine(b), c.policy, access.Options{}), Options{})
			b.ReportAllocs()
			if c.callers == 0 {
				for b.Loop() {
					pair(b, api, secret, "0")
				}
				return
			}
			var last atomic.Int64
			b.SetParallelism(c.callers)
			b.RunParallel(func(p *testing.PB) {
				path := strconv.FormatInt(last.Add(1), 10)
				for p.Next() {
					pair(b, api, secret, path)
				}
			})
		})
	}
}

func newMemory(testing.TB) lockkeeper.Engine { return memlock.New() }

func newDisk(tb testing.TB) lockkeeper.Engine {
	e, err := disklock.Open(tb.Context(), filepath.Join(tb.TempDir(), "locks"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { e.Close() })
	return e
}

func pair(tb testing.TB, api http.Handler, secret, path string) {
	made := direct(tb.Context(), api, secret, "POST", "/v1/claims", `{"path":"db/`+path+`","ttl":30,"as":"bench"}`)
	if made.Code != http.StatusCreated {
		tb.Errorf("POST: %d %s", made.Code, made.Body)
		return
	}
	ended := direct(tb.Context(), api, secret, "DELETE", made.Header().Get("Location"), "")
	if ended.Code != http.StatusNoContent {
		tb.Errorf("DELETE: %d %s", ended.Code, ended.Body)
	}
}

// direct calls the API without a network. header has names and values in turn.
func direct(ctx context.Context, api http.Handler, secret, method, target, body string,
	header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	r.Host = "localhost"
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	return w
}
