package httpapi

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A lateLister is an engine that is asked for lists, and answers each after a while.
type lateLister struct {
	lockkeeper.Engine
	lists  atomic.Int64
	delays []time.Duration // of the first lists; the others are prompt
}

func (e *lateLister) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		if n := int(e.lists.Add(1)) - 1; n < len(e.delays) {
			idle(e.delays[n])
		}
		for st, err := range e.Engine.List(ctx, q) {
			if !yield(st, err) {
				return
			}
		}
	}
}

// TestChangesBeforeTheFollowing: a stream shows what is, although its first snapshot was made before the server
// followed the engine, and the changes in between are in no list.
func TestChangesBeforeTheFollowing(t *testing.T) {
	const late = 300 * time.Millisecond
	slow, quick := []time.Duration{late, late, late}, []time.Duration{late, 0, late} // of the feed, the stream, the feed
	for name, c := range map[string]struct {
		delays []time.Duration
		before []string // claims that are there when the stream begins
		then   string   // a claim that comes after the first snapshot; "": the first of those before ends
		want   string
	}{
		"an end":                 {slow, []string{"x", "y"}, "", "reset, snapshot y held, ready"},
		"the end of all that is": {slow, []string{"x"}, "", "reset, ready"},
		"a claim":                {quick, nil, "z", "reset, snapshot z held, ready"},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, 0, func(w *world) {
				e := &lateLister{Engine: w.engine}
				w.engine = e
				w.serve()
				var first string
				for i, as := range c.before {
					if a := w.holds(`{"path":"` + as + `","as":"` + as + `","ttl":"1h"}`); i == 0 {
						first = a.header.Get("Location")
					}
				}
				e.lists.Store(0)
				e.delays = c.delays
				ctx, cancel := context.WithCancel(w.Context())
				defer cancel()
				stream := w.listen(ctx, "/v1/events")
				w.pass(late / 3) // after the first snapshot, and before the feed follows
				snapshot, id := heard(t, stream)
				if id != "" {
					t.Errorf("a client that has only the first snapshot can resume after %s", id)
				}
				if c.then != "" {
					w.holds(`{"path":"` + c.then + `","as":"` + c.then + `"}`)
				} else {
					w.want(w.ask("DELETE", first, ""), 204, "")
				}
				w.pass(2 * time.Second)
				if text, _ := heard(t, stream); text != c.want {
					t.Errorf("after %q: %q, want %q", snapshot, text, c.want)
				}
			})
		})
	}
}
