package httpapi

import (
	"net/http"
	"testing"
)

// Only so many lists of claims are made at a time; who comes then is told to come
// again, and everything else goes on.
func TestListsAreBounded(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		var leave []func()
		for range mostLists {
			l, err := w.apis[0].lists.enter("")
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, l)
		}
		for _, url := range []string{"/v1/claims", "/v1/why?path=db", "/v1/stats", "/v1/freezes"} {
			w.want(w.ask("GET", url, ""), http.StatusTooManyRequests, "quota")
		}
		w.holds(`{"path":"db"}`)
		leave[0]()
		w.want(w.ask("GET", "/v1/claims", ""), http.StatusOK, "")
		w.want(w.ask("GET", "/v1/stats", ""), http.StatusOK, "")
	})
}
