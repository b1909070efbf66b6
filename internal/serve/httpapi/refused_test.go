package httpapi

import (
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// cramped gives a world one identity, which may have one session, of an hour at most,
// and locks below ci. It returns its header.
func (w *world) cramped() string {
	highest := 5
	secret, digest := access.NewToken()
	w.apis[0].gate.Set(&access.Policy{
		Tokens: []access.Token{{Name: "ci", Digest: digest}},
		Rules:  []access.Rule{{Who: []string{"ci"}, May: []access.Verb{access.Lock, access.Look}, Paths: []string{"ci"}}},
		Quotas: []access.Quota{{
			Who:             []string{"ci"},
			Sessions:        1,
			Paths:           2,
			LongestTTL:      duration.Span(time.Hour),
			HighestPriority: &highest,
		}},
	})
	return "Authorization: Bearer " + secret
}

// TestRefusedLeavesNoSession: an identity with a quota of one session is refused as often as it
// asks for too much, and keeps no session from that.
func TestRefusedLeavesNoSession(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		ci := w.cramped()
		key := "Idempotency-Key: mine"
		for range 3 {
			w.want(w.ask("POST", "/v1/claims", `{"path":"denied"}`, ci), 403, "denied")
			w.want(w.ask("POST", "/v1/claims", `{"path":"denied"}`, ci, key), 403, "denied")
			w.want(w.ask("POST", "/v1/claims", `{"path":"ci/x","priority":6}`, ci, key), 403, "quota")
			w.want(w.ask("POST", "/v1/grab/denied?as=me", "", ci), 403, "denied")
			w.want(w.ask("POST", "/v1/grab/ci/x?as=me&for=2h", "", ci), 403, "quota")
		}
		held := w.holds(`{"path":"ci/x"}`, ci, key)
		// A refused repeat does not affect the claim.
		w.want(w.ask("POST", "/v1/claims", `{"path":"denied"}`, ci, key), 403, "denied")
		w.want(w.ask("POST", "/v1/claims", `{"path":"ci/y"}`, ci, key), 400, "invalid")
		if again := w.holds(`{"path":"ci/x"}`, ci, key); again.Fence != held.Fence {
			t.Errorf("fence %d, want %d", again.Fence, held.Fence)
		}
		w.want(w.ask("POST", "/v1/claims", `{"path":"ci/z"}`, ci), 429, "quota")
	})
}

// TestPermanentQuota: the refusal of a permanent quota has no Retry-After, and
// tells a Terraform user where to configure a shorter TTL.
func TestPermanentQuota(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		ci := w.cramped()
		for _, c := range []struct{ method, path, body, says string }{
			{"LOCK", "/v1/terraform/ci/prod", lockBody("one", "me"), "?ttl=1h"},
			{"LOCK", "/v1/terraform/ci/prod?ttl=2h", lockBody("one", "me"), "?ttl=1h"},
			{"POST", "/v1/claims", `{"path":"ci/x","ttl":"2h"}`, "longest TTL"},
			{"POST", "/v1/claims", `{"path":"ci/x","priority":6}`, "highest"},
			{"POST", "/v1/grab/ci/x?as=me&also=ci/y&also=ci/z", "", "3 paths are more than 2"},
		} {
			a := w.want(w.ask(c.method, c.path, c.body, ci), 403, "quota")
			if !strings.Contains(a.Detail, c.says) || a.header.Get("Retry-After") != "" {
				t.Errorf("%s %s: %s, Retry-After %q", c.method, c.path, a.text, a.header.Get("Retry-After"))
			}
		}
		// The addresses are copies of one another.
		for _, method := range []string{"UNLOCK", "DELETE"} {
			const at = "/v1/terraform/ci/prod?ttl=30m"
			w.want(w.ask("LOCK", at, lockBody("one", "me"), ci), 200, "")
			w.want(w.ask(method, at, lockBody("one", "me"), ci), 200, "")
		}
		if !w.free() {
			t.Error("something is left")
		}
	})
}

// TestRefusalWithoutQueueHasNoPosition: the refusal of a claim that did not want to wait names the
// blockers, and has no position.
func TestRefusalWithoutQueueHasNoPosition(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		w.holds(`{"path":"db","as":"ci","mode":"shared"}`)
		mine := w.holds(`{"path":"db","mode":"shared"}`)
		for _, a := range []answer{
			w.ask("POST", "/v1/claims", `{"path":"db"}`),
			w.ask("PATCH", mine.header.Get("Location"), `{"mode":"exclusive"}`),
		} {
			w.want(a, 409, "not-acquired")
			if strings.Contains(a.text, `"reason"`) || strings.Contains(a.text, `"position"`) ||
				!strings.Contains(a.text, `"detail":"held`) && !strings.Contains(a.text, "still held shared") {
				t.Errorf("it is told %s", a.text)
			}
		}
	})
}

// TestFreezeIsNamedInRefusal: a refusal because of a freeze names its author.
func TestFreezeIsNamedInRefusal(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		w.want(w.ask("PUT", "/v1/freezes/db", `{"for":"30m","as":"ops","note":"new disks"}`), 200, "")
		const want = "frozen by ops on db for "
		if a := w.want(w.ask("POST", "/v1/claims", `{"path":"db"}`), 409,
			"not-acquired"); !strings.HasPrefix(a.Detail, want) {
			t.Errorf("it is told %s, want %s", a.text, want)
		}
		if a := w.want(w.ask("LOCK", "/v1/terraform/db", lockBody("one", "me")), 423, ""); !strings.Contains(a.text, want) {
			t.Errorf("Terraform is told %s, want %s", a.text, want)
		}
	})
}
