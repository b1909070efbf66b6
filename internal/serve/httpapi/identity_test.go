package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// TestNamesOfIdentities: a name is its identity's own, whatever another one calls
// itself; who is in the way is told to everybody; rules bound who may take what.
func TestNamesOfIdentities(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	secrets := map[string]string{}
	policy := &access.Policy{Rules: []access.Rule{
		{Who: []string{"ann", "bob", "ops"}, May: []access.Verb{access.Lock}, Paths: []string{"infra", "db"}},
		{Who: []string{"ops"}, May: []access.Verb{access.Revoke, access.Look}, Paths: []string{"*"}},
		{Who: []string{"eve"}, May: []access.Verb{access.Look, access.Lock}, Paths: []string{"*"}},
	}}
	for _, name := range []string{"ann", "bob", "ops", "eve"} {
		secret, digest := access.NewToken()
		secrets[name] = "Bearer " + secret
		policy.Tokens = append(policy.Tokens, access.Token{Name: name, Digest: digest})
	}
	v := villageUnder(t, e, policy)
	as := func(who, method, path, body string) reply {
		t.Helper()
		return v.ask(method, path, body, "Authorization", secrets[who])
	}
	v.refused(401, "unauthenticated", "POST", "/v1/grab/db?as=me", "")
	v.refused(401, "unauthenticated", "LOCK", "/v1/terraform/db", lockBody("one", "me"))
	v.refused(401, "unauthenticated", "GET", "/v1/grab/db", "", "Authorization", "Bearer lk_wrong")
	v.refused(403, "denied", "POST", "/v1/grab/dbs?as=me", "", "Authorization", secrets["ann"])
	v.refused(403, "denied", "LOCK", "/v1/terraform/dbs", lockBody("one", "me"), "Authorization", secrets["ann"])

	if h := as("ann", "POST", "/v1/grab/db?as=me", ""); h.grab.Status != "ok" {
		t.Fatalf("%d %s", h.code, h.text)
	}
	if h := as("bob", "POST", "/v1/grab/db?as=me", ""); h.grab.Status != "wait" ||
		!strings.HasPrefix(h.grab.BlockedBy[0].Ref.Session, "ann:grab-") {
		t.Errorf("bob under the same name: %d %s, want that he waits for ann", h.code, h.text)
	}
	if h := as("bob", "GET", "/v1/grab/db?as=me", ""); h.grab.Status != "wait" {
		t.Errorf("%s, want bob's own", h.text)
	}
	if h := as("bob", "DELETE", "/v1/grab/db?as=me", ""); *h.grab.Released != 1 {
		t.Errorf("%s, want bob's place", h.text)
	}
	if h := as("bob", "DELETE", "/v1/grab/db?as=me", ""); *h.grab.Released != 0 {
		t.Errorf("%s, want that ann's is not touched", h.text)
	}
	if h := as("ann", "POST", "/v1/grab/db?as=me", ""); h.grab.Status != "ok" {
		t.Errorf("%s, want ann unharmed", h.text)
	}

	// he would be told that it is free
	v.refused(403, "bob may not look db", "GET", "/v1/grab/db", "", "Authorization", secrets["bob"])
	if h := as("eve", "GET", "/v1/grab/db", ""); h.grab.Status != "taken" {
		t.Errorf("%d %s, want that it is taken", h.code, h.text)
	}

	const state = "/v1/terraform/infra"
	lock := lockBody("one", "ann@host")
	if h := v.ask("LOCK", state, lock, "Authorization", basic(secrets["ann"])); h.code != 200 {
		t.Fatalf("with the token as a password: %d %s", h.code, h.text)
	}
	v.refused(401, "unauthenticated", "LOCK", state, lock, "Authorization", basic("Bearer x"))
	v.refused(401, "unauthenticated", "LOCK", state, lock, "Authorization", basic("Bearer "))
	if h := as("bob", "LOCK", state, lockBody("two", "bob")); h.code != 423 || h.info(t).Who != "ann@host" {
		t.Errorf("%d %s, want who has it", h.code, h.text)
	}
	if h := as("bob", "LOCK", state, lock); h.code != 423 {
		t.Errorf("ann's request by bob: %d %s, want it refused", h.code, h.text)
	}
	as("bob", "UNLOCK", state, lock)
	v.refused(403, "denied", "UNLOCK", state, "", "Authorization", secrets["bob"])
	v.refused(403, "denied", "UNLOCK", state, "", "Authorization", secrets["eve"])
	if h := as("ann", "LOCK", state, lock); h.code != 200 {
		t.Errorf("after bob's unlocks: %d %s", h.code, h.text)
	}
	if h := as("ops", "UNLOCK", state, lockBody("two", "ops")); h.code != 409 || h.info(t).Who != "ann@host" {
		t.Errorf("%d %s, want who has it", h.code, h.text)
	}
	if h := as("ann", "UNLOCK", state, ""); h.code != 200 { // may not revoke, but it is her own
		t.Errorf("forced by ann: %d %s", h.code, h.text)
	}
	if h := as("ann", "LOCK", state, lock); h.code != 200 {
		t.Errorf("%d %s", h.code, h.text)
	}
	if h := as("ops", "UNLOCK", state, ""); h.code != 200 {
		t.Errorf("forced by ops: %d %s", h.code, h.text)
	}
	if h := as("bob", "LOCK", state, lockBody("two", "bob")); h.code != 200 {
		t.Errorf("%d %s", h.code, h.text)
	}
	if h := as("ann", "UNLOCK", state, lock); h.code != 410 || !strings.Contains(h.text, "revoked") {
		t.Errorf("%d %s, want that ann is told", h.code, h.text)
	}
}

// basic has a bearer token as a password.
func basic(bearer string) string {
	r, _ := http.NewRequest("GET", "/", nil)
	r.SetBasicAuth("terraform", strings.TrimPrefix(bearer, "Bearer "))
	return r.Header.Get("Authorization")
}
