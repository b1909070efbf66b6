package httpapi

import (
	"net/http"
	"testing"
	"time"
)

// A claim with a key that another server released stays released: a late repeat of
// the request that made it does not make it again within its TTL (R16).
func TestLateKeyAfterReleaseElsewhere(t *testing.T) {
	inMemory(t, 2, func(w *world) {
		const body, key = `{"path":"db","ttl":"60s"}`, "Idempotency-Key: deploy 7"
		a := w.holds(body, key)
		at := a.header.Get("Location")
		if gone, err := w.try(w.Context(), "server1", "DELETE", at, ""); err != nil || gone.status != http.StatusNoContent {
			t.Fatal(gone, err)
		}
		w.pass(20 * time.Second)
		if again, err := w.try(w.Context(), "server0", "POST", "/v1/claims", body, key); err != nil ||
			again.status == http.StatusCreated {
			t.Errorf("20 s after its release the claim is made again: %v %v", again, err)
		}
		if !w.free() {
			t.Error("the path is taken")
		}
	})
}
