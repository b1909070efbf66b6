package httpapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// An odd engine is slow, loses answers, and notes what it is told.
type odd struct {
	lockkeeper.Engine
	before, after time.Duration // that a renewal takes, on its way there and back
	lost          bool          // the answer to an Attach
	told, heard   uint64        // of renewals: the number of the lease, and what its user had heard
}

func (e *odd) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	idle(e.before)
	lease, err := e.Engine.Renew(ctx, k)
	e.told, e.heard = lease.Number, k.Acked
	idle(e.after)
	return lease, err
}

func (e *odd) Attach(ctx context.Context, s lockkeeper.Session,
	notify func([]lockkeeper.Status)) (lockkeeper.Lease, error) {
	lease, err := e.Engine.Attach(ctx, s, notify)
	if e.lost && err == nil {
		return lockkeeper.Lease{}, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable}
	}
	return lease, err
}

// overOdd runs a test with an API of an odd engine. ask sends it a request.
func overOdd(t *testing.T, test func(e *odd, ask func(method, url, body string) *httptest.ResponseRecorder)) {
	synctest.Test(t, func(t *testing.T) {
		e := &odd{Engine: memlock.New()}
		defer e.Close()
		api := New(access.New(e, nil, access.Options{}), Options{})
		defer api.stop()
		test(e, func(method, url, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, url, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			to := httptest.NewRecorder()
			api.ServeHTTP(to, r)
			return to
		})
	})
}

// takes has another session ask for "db", and take it after so long.
func (e *odd) takes(t *testing.T, after time.Duration) {
	t.Helper()
	lease, err := e.Engine.Attach(t.Context(), lockkeeper.Session{ID: "thief", TTL: time.Hour}, nil)
	if err == nil {
		_, err = e.Engine.Claim(t.Context(), lease.Key, lockkeeper.Want{
			ID: 1, Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}}, Wait: lockkeeper.Forever,
			Priority: 1, Steal: lockkeeper.Take, After: after,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// claimOf is the claim that an answer tells.
func claimOf(t *testing.T, a *httptest.ResponseRecorder) (st lockkeeper.Status) {
	t.Helper()
	if err := json.Unmarshal(a.Body.Bytes(), &st); err != nil || a.Code >= 300 {
		t.Fatalf("%d %s (%v)", a.Code, a.Body, err)
	}
	return st
}

// TestChangeParameterIsForwardedAsAcked: the API acknowledges a lease to the engine only after the
// client has stated the change that the lease contained.
func TestChangeParameterIsForwardedAsAcked(t *testing.T) {
	overOdd(t, func(e *odd, ask func(method, url, body string) *httptest.ResponseRecorder) {
		st := claimOf(t, ask("POST", "/v1/claims", `{"path":"db"}`))
		at := "/v1/claims/" + st.Ref.String() + "/renew"
		first := st.Change
		claimOf(t, ask("POST", at, ""))
		e.takes(t, 10*time.Second)
		asked := claimOf(t, ask("POST", at, "")) // this answer may have been lost
		if asked.Asked == nil || asked.Change <= first {
			t.Fatalf("not asked: %+v", asked)
		}
		unheard := e.told
		for _, query := range []string{"", "?change=" + number(first)} {
			if claimOf(t, ask("POST", at+query, "")); e.heard >= unheard {
				t.Errorf("%q says that lease %d was heard, which told of the ask", query, e.heard)
			}
		}
		last := e.told
		if claimOf(t, ask("POST", at+"?change="+number(asked.Change), "")); e.heard != last {
			t.Errorf("heard %d, want %d", e.heard, last)
		}
	})
}

func number(n uint64) string {
	text, _ := json.Marshal(n)
	return string(text)
}

// TestSlowAnswers: what is left of a hold that is asked for counts from when the request
// came. So much as the way to the engine took is added, and nothing for the way back (R12).
func TestSlowAnswers(t *testing.T) {
	overOdd(t, func(e *odd, ask func(method, url, body string) *httptest.ResponseRecorder) {
		st := claimOf(t, ask("POST", "/v1/claims", `{"path":"db","ttl":"1m"}`))
		e.takes(t, 30*time.Second)
		for _, c := range []struct{ before, after time.Duration }{{0, 3 * time.Second}, {2 * time.Second, 1 * time.Second},
			{0, 0}} {
			e.before, e.after = c.before, c.after
			received := time.Now()
			st = claimOf(t, ask("POST", "/v1/claims/"+st.Ref.String()+"/renew", ""))
			// The engine ends it 30 s after the thief has asked, at the beginning.
			if end := received.Add(st.Asked.Left); st.Asked.Left <= 0 || end.After(thiefAt.Add(30*time.Second)) {
				t.Errorf("after %s and %s: the client counts until %s after the ask, which is 30s", c.before, c.after,
					end.Sub(thiefAt))
			}
		}
	})
}

// thiefAt is when a bubble of fake time begins.
var thiefAt = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// TestUnverifiedCertificate: the API ignores a certificate that was not verified.
func TestUnverifiedCertificate(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	p := &access.Policy{
		Rules:        []access.Rule{{Who: []string{"*"}, May: []access.Verb{access.Look}, Paths: []string{"*"}}},
		Certificates: true,
	}
	api := New(access.New(e, p, access.Options{}), Options{})
	shown := &x509.Certificate{Subject: pkix.Name{CommonName: "ci"}, NotAfter: time.Now().Add(time.Hour)}
	for _, c := range []struct {
		chains [][]*x509.Certificate
		code   int
	}{{nil, 401}, {[][]*x509.Certificate{{shown}}, 200}} {
		r := httptest.NewRequest("GET", "/v1/claims", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{shown}, VerifiedChains: c.chains}
		to := httptest.NewRecorder()
		if api.ServeHTTP(to, r); to.Code != c.code {
			t.Errorf("%d verified chains: %d %s", len(c.chains), to.Code, to.Body)
		}
	}
}

// TestTerraformRepeatFails: a repeat of a LOCK that fails does not give back what the
// first one has taken.
func TestTerraformRepeatFails(t *testing.T) {
	overOdd(t, func(e *odd, ask func(method, url, body string) *httptest.ResponseRecorder) {
		const lock = `{"ID":"4f8a","Who":"me@here"}`
		if a := ask("LOCK", "/v1/terraform/prod", lock); a.Code != 200 {
			t.Fatalf("%d %s", a.Code, a.Body)
		}
		e.lost = true
		if a := ask("LOCK", "/v1/terraform/prod", lock); a.Code != 503 {
			t.Errorf("the repeat: %d %s", a.Code, a.Body)
		}
		e.lost = false
		if a := ask("LOCK", "/v1/terraform/prod", `{"ID":"another"}`); a.Code != 423 {
			t.Errorf("another: %d %s", a.Code, a.Body)
		}
	})
}
