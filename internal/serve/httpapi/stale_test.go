package httpapi

import (
	"context"
	"encoding/json"
	"iter"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// stuck is an engine whose disk is full: what it lists was so twelve seconds ago.
type stuck struct{ lockkeeper.Engine }

func (e stuck) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		full := &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "the disk is full"}
		if q.Stale {
			full.Stale = 12 * time.Second
			for st := range e.Engine.List(ctx, q) {
				if !yield(st, nil) {
					return
				}
			}
		}
		yield(lockkeeper.Status{}, full)
	}
}

// TestListsOfAStuckEngine: while the disk of the server is full, lists return the last durable
// state, its age and the cause.
func TestListsOfAStuckEngine(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		w.holds(`{"path":"db/a","as":"a"}`)
		w.holds(`{"path":"db/b","as":"b"}`)
		w.engine = stuck{w.engine}
		w.serve()
		for path, want := range map[string]string{
			"/v1/claims":         "a held, b held",
			"/v1/claims?limit=1": "a held, more",
			"/v1/why?path=db":    "a held, b held",
			"/v1/freezes":        "",
		} {
			got, err := w.try(w.Context(), "server1", "GET", path, "")
			if err != nil {
				t.Fatal(err)
			}
			if text := listed(t, w.want(got, 200, "")); text != want {
				t.Errorf("%s: %s, want %s", path, text, want)
			}
			wantStale(t, path, got)
		}
		got, err := w.try(w.Context(), "server1", "GET", "/v1/stats", "")
		if err != nil {
			t.Fatal(err)
		}
		wantStale(t, "stats", w.want(got, 200, ""))
	})
}

func wantStale(t *testing.T, what string, a answer) {
	t.Helper()
	var said struct {
		Stale   float64 `json:"stale"`
		Because string  `json:"because"`
	}
	if err := json.Unmarshal([]byte(a.text), &said); err != nil || said.Stale != 12 || said.Because != "the disk is full" {
		t.Errorf("%s: %s (%v), want that it is 12s old, and why", what, a.text, err)
	}
}
