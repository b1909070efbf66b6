package httpapi

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/observe"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// TestPastBeforeTheFirstStream: a stream with past=true shows what happened before anybody looked, once each, and
// says since when that is all. What ended before the server began is not in it.
func TestPastBeforeTheFirstStream(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		w.holds(`{"path":"old","as":"old","ttl":"1h"}`)
		w.pass(time.Minute)
		watch := observe.NewWatch(w.engine, nil, nil, nil)
		watch.Notify(w.apis[0].History())
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		go watch.Run(ctx)
		w.pass(time.Second)
		a := w.holds(`{"path":"db","as":"a","ttl":"1h"}`)
		w.pass(time.Minute)
		w.want(w.ask("DELETE", a.header.Get("Location"), ""), 204, "")
		wants := []string{
			"past a held, past a ended, snapshot old held, ready",
			"past a held, past a ended, past b held, snapshot old held, snapshot b held, ready",
		}
		for i, want := range wants {
			if i > 0 { // the feed has followed, too
				w.holds(`{"path":"b","as":"b","ttl":"1h"}`)
				w.pass(time.Second)
			}
			stream := w.listen(ctx, "/v1/events?past=true")
			first := <-stream
			for first.event == "" {
				first = <-stream
			}
			var remembered struct{ Age float64 }
			if err := json.Unmarshal([]byte(first.data), &remembered); err != nil || first.event != "remembered" {
				t.Fatalf("the first event is %s %s (%v)", first.event, first.data, err)
			}
			w.pass(time.Second)
			if text, _ := heard(t, stream); text != want {
				t.Errorf("%s, want %s", text, want)
			}
			if since := time.Duration(remembered.Age * float64(time.Second)); since < time.Minute || since > 2*time.Minute {
				t.Errorf("the changes of %s are remembered", since)
			}
		}
	})
}

// TestHistoryWithoutReports: the past begins with the first stream.
func TestHistoryWithoutReports(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		if _, since := w.apis[0].past(mark{}); time.Since(since) > 0 {
			t.Errorf("the changes since %s are remembered", since)
		}
	})
}

// TestHistoryIsBounded: it keeps the latest changes, and says since when it has all.
func TestHistoryIsBounded(t *testing.T) {
	h := newHistory()
	h.Begin()
	for i := range maxPast + 10 {
		h.Changed(&lockkeeper.Status{Change: uint64(i)})
	}
	events, since := h.all()
	if len(events) != maxPast || events[0].Change != 10 || !since.Equal(events[0].at) {
		t.Errorf("%d events from %d since %s", len(events), events[0].Change, since)
	}
	for range 10 {
		h.Changed(&lockkeeper.Status{Label: lockkeeper.Label{Note: strings.Repeat("x", maxHistoryBytes/4)}})
	}
	if events, _ = h.all(); len(events) != 3 {
		t.Errorf("%d large events are kept", len(events))
	}
}

// TestLatest compares the ring with a list.
func TestLatest(t *testing.T) {
	for seed := range testmode.Seeds(t, 100) {
		random := rand.New(rand.NewPCG(seed, 1))
		l := latest{most: 1 + random.IntN(200), mostBytes: 400 * (1 + random.IntN(200))}
		var want []uint64
		for i := range uint64(500) {
			dropped := l.add(&lockkeeper.Status{Change: i, Label: lockkeeper.Label{Note: strings.Repeat("x", random.IntN(50))}})
			want = append(want[dropped:], i)
			from, n := random.IntN(len(want)), random.IntN(len(want)+1)
			var got []uint64
			for _, ev := range l.from(from, n) {
				got = append(got, ev.Change)
			}
			if upTo := min(from+n, len(want)); len(want) != l.count || !slices.Equal(got, want[from:upTo]) {
				t.Fatalf("%v, want %v of %d\nreplay: %s", got, want[from:upTo], l.count, testmode.Replay(t, seed))
			}
			if l.count > l.most || l.count > 1 && l.bytes > l.mostBytes {
				t.Fatalf("%d events with %d bytes\nreplay: %s", l.count, l.bytes, testmode.Replay(t, seed))
			}
		}
	}
}
