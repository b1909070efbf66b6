package httpapi

import (
	"net/http"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// TestListsAreBounded: the number of concurrent lists is bounded; further requests get 429.
func TestListsAreBounded(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		everybody := w.apis[0].gate.Ledger().Identity("")
		if err := everybody.Take(limits.BroadLists, limits.DefaultBounds().Total[limits.BroadLists]); err != nil {
			t.Fatal(err)
		}
		for _, url := range []string{"/v1/claims", "/v1/why?path=db", "/v1/stats", "/v1/freezes"} {
			w.want(w.ask("GET", url, ""), http.StatusTooManyRequests, "quota")
		}
		w.holds(`{"path":"db"}`)
		everybody.Give(limits.BroadLists, 1)
		w.want(w.ask("GET", "/v1/claims", ""), http.StatusOK, "")
		w.want(w.ask("GET", "/v1/stats", ""), http.StatusOK, "")
	})
}
