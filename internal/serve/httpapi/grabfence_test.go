package httpapi

import (
	"testing"
	"time"
)

// TestGrabWithFenceMakesNothing: a repeat that states the hold it goes on with is never
// queued again, nor does another hold of the name pass for it.
func TestGrabWithFenceMakesNothing(t *testing.T) {
	v := newVillage(t)
	first := v.ok("me", "db").Token
	if a := v.ok("me", "db", "&ttl=90", "&fence="+first); a.Token != first || a.TTL != seconds(90*time.Second) {
		t.Errorf("%+v, want the same hold, refreshed", a)
	}
	v.released(1, "me", "db")
	lost := func(words string) {
		t.Helper()
		for range 2 {
			v.refused(410, words, "POST", "/v1/grab/db?as=me&fence="+first, "")
		}
		v.refused(410, words, "POST", "/v1/grab/db", `{"as":"me","fence":"`+first+`"}`)
	}
	lost("problems/lost")
	if h := v.ask("GET", "/v1/grab/db", ""); h.grab.Status != "free" {
		t.Errorf("%s, want that nothing was made", h.text)
	}
	v.ok("you", "db")
	v.waits(1, "me", "db")
	lost("now waits")
	v.released(1, "you", "db")
	v.ok("me", "db")
	lost("now has another hold")
	v.refused(400, "is incomplete", "POST", "/v1/grab/db?as=me&fence=1", "")
	v.refused(400, "17-k3x9q2ab; fence excludes wait", "POST", "/v1/grab/db?as=me&fence=x&wait=9", "")
}

// TestGrabRenewMakesNothing: PATCH keeps what there is, says how it stands, and never
// queues.
func TestGrabRenewMakesNothing(t *testing.T) {
	v := newVillage(t)
	const me = "/v1/grab/db?as=me"
	v.refused(404, "unknown-claim", "PATCH", me, "")
	if h := v.ask("GET", "/v1/grab/db", ""); h.grab.Status != "free" {
		t.Errorf("%s, want that nothing was made", h.text)
	}
	held := v.ok("me", "db")
	for body, ttl := range map[string]time.Duration{
		"":             time.Minute,
		"ttl=90":       90 * time.Second,
		`{"ttl":"2m"}`: 2 * time.Minute,
		"for=1h":       time.Hour,
	} {
		h := v.ask("PATCH", me, body)
		if h.code != 200 || h.grab.Token != held.Token || h.grab.Op != "renew" || h.grab.TTL < seconds(ttl) {
			t.Errorf("%q: %d %s, want it held for %s", body, h.code, h.text, ttl)
		}
	}
	v.waits(1, "you", "db")
	if h := v.ask("PATCH", "/v1/grab/db?as=you", ""); h.code != 202 || h.grab.Position != 1 {
		t.Errorf("%d %s, want wait 1", h.code, h.text)
	}
	if h := v.ask("PATCH", "/v1/grab/db?as=you", "", "Accept", "text/plain"); h.code != 202 || h.text != "wait 1\n" {
		t.Errorf("%d %s, want wait 1", h.code, h.text)
	}
	v.refused(400, `parameter \"shared\"`, "PATCH", me+"&shared=1", "")
	v.ask("POST", "/v1/claims/"+held.Claim.String()+"/revoke", `{"force":true,"note":"new disks"}`)
	v.refused(410, "new disks", "PATCH", me, "")
	v.ok("you", "db")
}
