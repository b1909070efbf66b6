package httpapi

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// A guarded world has three identities: ci and web lock below their names, ops may
// look and revoke everywhere. It returns their Authorization headers, and what sets
// a policy with fewer tokens.
func (w *world) guard() (ci, web, ops string, without func(name string)) {
	policy := &access.Policy{
		Rules: []access.Rule{
			{Who: []string{"ci"}, May: []access.Verb{access.Lock, access.Look}, Paths: []string{"ci", "both"}},
			{Who: []string{"web"}, May: []access.Verb{access.Lock, access.Look}, Paths: []string{"web", "both"}},
			{Who: []string{"ops"}, May: []access.Verb{access.Look, access.Revoke, access.Freeze, access.Drain},
				Paths: []string{"*"}},
		},
		Quotas: []access.Quota{{Who: []string{"ci"}, Claims: 50, LongestTTL: duration.Span(time.Hour)}},
	}
	secrets := map[string]string{}
	for _, name := range []string{"ci", "web", "ops"} {
		secret, digest := access.NewToken()
		secrets[name] = "Authorization: Bearer " + secret
		policy.Tokens = append(policy.Tokens, access.Token{Name: name, Digest: digest})
	}
	w.apis[0].gate.Set(policy)
	return secrets["ci"], secrets["web"], secrets["ops"], func(name string) {
		var left []access.Token
		for _, t := range policy.Tokens {
			if t.Name != name {
				left = append(left, t)
			}
		}
		policy.Tokens = left
		w.apis[0].gate.Set(policy)
	}
}

// TestAuthentication: the API refuses requests without valid credentials, with a challenge that
// names the scheme.
func TestAuthentication(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		ci, _, _, without := w.guard()
		for _, c := range []struct{ header, challenge string }{
			{"X-Nothing: 1", "Bearer"},
			{"Authorization: Bearer lk_wrong", `Bearer error="invalid_token"`},
			{"Authorization: Basic YTpi", `Bearer error="invalid_token"`},   // the password is b
			{"Authorization: Basic YTo=", `Bearer error="invalid_request"`}, // and there is none
			{"Authorization: Bearer", `Bearer error="invalid_request"`},
		} {
			a := w.want(w.ask("GET", "/v1/claims", "", c.header), 401, "unauthenticated")
			if got := a.header.Get("WWW-Authenticate"); got != c.challenge {
				t.Errorf("%s: %s, want %s", c.header, got, c.challenge)
			}
		}
		w.want(w.ask("GET", "/v1/claims", "", ci), 200, "")
		without("ci")
		w.want(w.ask("GET", "/v1/claims", "", ci), 401, "unauthenticated")
	})
}

// TestClaimsOfOtherIdentitiesAreOutOfReach: of another identity's claims nothing is seen, renewed,
// ended or repeated, whatever of them is known.
func TestClaimsOfOtherIdentitiesAreOutOfReach(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		ci, web, ops, _ := w.guard()
		key := "Idempotency-Key: the same"
		held := w.holds(`{"path":"ci/db"}`, ci, key)
		at := held.header.Get("Location")
		if w.state(lockkeeper.Ref{Session: "ci:" + held.Ref.Session, ID: 1}) != lockkeeper.Held {
			t.Fatal("not held by ci")
		}
		for _, name := range []string{at, "/v1/claims/ci:" + held.Ref.String()} {
			w.want(w.ask("GET", name, "", web), 404, "unknown-claim")
			w.want(w.ask("DELETE", name, "", web), 404, "unknown-claim")
			w.want(w.ask("POST", name+"/renew", "", web), 404, "unknown-claim")
			w.want(w.ask("PATCH", name, `{"priority":5}`, web), 404, "unknown-claim")
			w.want(w.ask("POST", name+"/revoke", `{}`, web), 403, "denied")
		}
		w.want(w.ask("POST", "/v1/claims", `{"path":"ci/db"}`, web), 403, "denied")
		w.want(w.ask("POST", "/v1/claims", `{"path":"cid"}`, ci), 403, "denied")
		w.want(w.ask("PUT", "/v1/freezes/ci", `{"for":60}`, ci), 403, "denied")
		w.want(w.ask("POST", "/v1/claims", `{"path":"ci/x","ttl":"2h"}`, ci), 403, "quota")
		other := w.holds(`{"path":"web/db"}`, web, key)
		if other.Fence == held.Fence || listed(t, w.ask("GET", "/v1/claims", "", web)) != " held" {
			t.Errorf("the same key of another identity: %s", other.text)
		}
		// Who may look everywhere names it as it is listed, and so revokes it.
		w.want(w.ask("POST", "/v1/claims/ci:"+held.Ref.String()+"/revoke", `{"note":"enough"}`, ops), 200, "")
		w.want(w.ask("DELETE", "/v1/claims/ci:"+held.Ref.String(), "", ops), 403, "denied")
		if a := w.want(w.ask("POST", at+"/renew", "", ci), 200, ""); a.Asked == nil || a.Asked.As != "ops" {
			t.Errorf("the holder is told: %s", a.text)
		}
	})
}

// TestWithdrawnMeanwhile: a poll and a stream end with the credentials that began
// them, and others' go on.
func TestWithdrawnMeanwhile(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		ci, web, _, without := w.guard()
		w.holds(`{"path":"both","ttl":"1h"}`, web)
		polls := map[string]chan answer{ci: make(chan answer, 1), web: make(chan answer, 1)}
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		streams := map[string]<-chan said{}
		for who, told := range polls {
			go func() { told <- w.ask("POST", "/v1/claims?poll=1m", `{"path":"both","wait":"1h"}`, who) }()
			streams[who] = w.listen(ctx, "/v1/events", who)
		}
		w.pass(time.Second)
		for who := range streams {
			if text, _ := heard(t, streams[who]); !strings.Contains(text, "ready") {
				t.Errorf("a stream begins with %s", text)
			}
		}
		without("ci")
		w.pass(0)
		w.want(<-polls[ci], 401, "unauthenticated")
		if text, _ := heard(t, streams[ci]); text != "end" {
			t.Errorf("the stream of who was withdrawn: %s", text)
		}
		if text, _ := heard(t, streams[web]); text != "" {
			t.Errorf("another's stream: %s", text)
		}
		w.pass(35 * time.Second) // the place of who is gone is perishable
		if text, _ := heard(t, streams[web]); text != "change  ended" {
			t.Errorf("another's stream: %s", text)
		}
		w.pass(30 * time.Second)
		w.want(<-polls[web], 202, "")
	})
}

// TestPathIsDeniedAndNotFree: whatever an identity asks of a path at which it may do nothing, it is denied,
// because an empty answer would say that the path is free.
func TestPathIsDeniedAndNotFree(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		ci, web, _, _ := w.guard()
		w.holds(`{"path":"web/db"}`, web)
		for _, url := range []string{"/v1/claims", "/v1/why", "/v1/stats"} {
			a := w.want(w.ask("GET", url+"?path=web/db", "", ci), 403, "denied")
			if !strings.HasPrefix(a.Detail, "ci may not look web/db: ") {
				t.Errorf("%s: %s", url, a.text)
			}
			w.want(w.ask("GET", url+"?path=web/db", "", web), 200, "")
			w.want(w.ask("GET", url+"?path=ci/db", "", ci), 200, "")
			w.want(w.ask("GET", url, "", ci), 200, "")
		}
		// A stream is refused before it begins, also to a client that resumes.
		mine := w.listen(w.Context(), "/v1/events?path=ci/db", ci)
		w.pass(time.Second)
		text, last := heard(t, mine)
		if text != "ready" {
			t.Errorf("ci hears of its own path %s", text)
		}
		for _, resume := range []string{"X-Nothing: 1", "Last-Event-ID: " + last} {
			a := w.want(w.ask("GET", "/v1/events?path=web/db", "", ci, resume), 403, "denied")
			if a.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%v: %s", a.header, a.text)
			}
		}
		if a := w.ask("HEAD", "/v1/events?path=web/db", "", ci); a.status != 403 {
			t.Errorf("HEAD: %d", a.status)
		}
	})
}

// TestStreamsShowWhatOneMaySee: a stream shows only claims that its identity may see.
func TestStreamsShowWhatOneMaySee(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		ci, web, ops, _ := w.guard()
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		mine, all := w.listen(ctx, "/v1/events", ci), w.listen(ctx, "/v1/events", ops)
		w.pass(time.Second)
		w.holds(`{"path":"web/secret","as":"web"}`, web)
		held := w.holds(`{"path":"ci/db","as":"ci"}`, ci)
		w.pass(gather)
		if text, _ := heard(t, mine); text != "ready, change ci held" {
			t.Errorf("ci hears %s", text)
		}
		if text, _ := heard(t, all); text != "ready, change web held, change ci held" {
			t.Errorf("ops hears %s", text)
		}
		own := w.listen(ctx, "/v1/events?session="+held.Ref.Session, ci)
		w.pass(time.Second)
		if text, _ := heard(t, own); text != "snapshot ci held, ready" {
			t.Errorf("ci hears of its session %s", text)
		}
	})
}

// TestQuotaHolds: a flood of one identity is refused at its quota, and harms no other.
func TestQuotaHolds(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		ci, web, _, _ := w.guard()
		statuses := map[int]int{}
		for i := range 200 {
			a := w.ask("POST", "/v1/claims", `{"path":"ci/`+strings.Repeat("x", i+1)+`"}`, ci)
			statuses[a.status]++
			if a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
		if statuses[201] != 50 || statuses[429] != 150 {
			t.Errorf("answers %v, want 50 of 201 and 150 of 429", statuses)
		}
		w.holds(`{"path":"web/db"}`, web)
		w.pass(time.Minute)
		w.holds(`{"path":"ci/again"}`, ci)
	})
}
