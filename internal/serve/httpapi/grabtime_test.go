package httpapi

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/disklock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// village is w's first server, in its bubble of fake time.
func (w *world) village() *village {
	return &village{T: w.T, engine: w.engine, gate: w.apis[0].gate, url: "http://server0", client: w.client}
}

func pass(d time.Duration) { <-time.After(d) }

// TestGrabWaitsLong: a request that stays open for longer than the TTL keeps its place,
// and what it promises counts from when it was sent.
func TestGrabWaitsLong(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		v := w.village()
		v.ok("me", "db", "&for=50s")
		began := time.Now()
		if a := v.waits(1, "me", "db/x", "&wait=30s"); time.Since(began) > 0 || len(a.OwnHolds) != 1 {
			t.Errorf("a name that waits for itself was kept for %s: %v", time.Since(began), a.OwnHolds)
		}
		v.released(1, "me", "db/x")
		waits := make(chan grabAnswer)
		go func() { waits <- v.waits(1, "you", "db", "&ttl=6&wait=30s") }()
		synctest.Wait()
		v.waits(2, "they", "db", "&ttl=5m")
		a := <-waits
		promised := began.Add(time.Duration(a.TTL))
		if open := time.Since(began); open < 30*time.Second || open > 31*time.Second {
			t.Errorf("it was open for %s, want 30s", open)
		}
		a = v.ok("you", "db", "&ttl=6&wait=30s") // 50 s after the first
		if open := time.Since(began); open < 49*time.Second || open > 51*time.Second {
			t.Errorf("it came up after %s, want 50s", open)
		}
		v.waits(1, "they", "db")
		if promised.Before(began.Add(30*time.Second)) || promised.After(began.Add(36*time.Second)) {
			t.Errorf("the place was promised until %s after the start", promised.Sub(began))
		}
	})
}

// TestGrabPromises: whenever a hold is answered, no other claim is granted before the promised TTL,
// counted from when the request was sent.
func TestGrabPromises(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		v := w.village()
		for wait := range 8 {
			path := fmt.Sprintf("p/%d", wait)
			v.ok("first", path, "&ttl=4")
			sent := time.Now()
			a := v.ok("second", path, fmt.Sprintf("&ttl=5&wait=%d", 10+wait))
			end := sent.Add(time.Duration(a.TTL))
			v.ok("third", path, "&wait=60")
			if early := time.Until(end); early > 0 {
				t.Errorf("wait %d: a third was in %s before the promise was over", wait, early)
			}
		}
	})
}

// TestGrabStops: a request that waits is answered when the server stops, and refused when
// its pass is withdrawn.
func TestGrabStops(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		v := w.village()
		secret, digest := access.NewToken()
		policy := &access.Policy{
			Rules:  []access.Rule{{Who: []string{"*"}, May: []access.Verb{access.Lock}, Paths: []string{"*"}}},
			Tokens: []access.Token{{Name: "ann", Digest: digest}},
		}
		v.gate.Set(policy)
		ask := func(as string) reply {
			return v.ask("POST", "/v1/grab/db?as="+as+"&wait=50s", "", "Authorization", "Bearer "+secret)
		}
		began := time.Now()
		if h := ask("me"); h.grab.Status != "ok" {
			t.Fatal(h.text)
		}
		answers := make(chan reply)
		go func() { answers <- ask("you") }()
		pass(time.Second)
		v.gate.Set(&access.Policy{Rules: policy.Rules})
		if h := <-answers; h.code != 401 || time.Since(began) > 1500*time.Millisecond {
			t.Errorf("withdrawn: %d %s after %s", h.code, h.text, time.Since(began))
		}
		v.gate.Set(policy)
		go func() { answers <- ask("they") }()
		pass(time.Second)
		w.apis[0].stop()
		if h := <-answers; h.grab.Status != "wait" || time.Since(began) > 2500*time.Millisecond {
			t.Errorf("stopping: %d %s after %s", h.code, h.text, time.Since(began))
		}
	})
}

// TestGrabFor: held without a repeat for so long, and no longer.
func TestGrabFor(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		v := w.village()
		if a := v.ok("freeze", "deploy", "&for=2d"); a.TTL < seconds(48*time.Hour) {
			t.Errorf("it lives for %v, want two days", a.TTL)
		}
		pass(47 * time.Hour)
		if a := v.waits(1, "me", "deploy"); len(a.BlockedBy) != 1 || a.BlockedBy[0].Left > time.Hour {
			t.Errorf("%v, want until when it is held", a.BlockedBy)
		}
		pass(61 * time.Minute)
		v.ok("me", "deploy")
	})
}

// TestGrabRestart: reservations and holds outlive the server, on disk.
func TestGrabRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	var fence uint64
	for start := range 2 {
		e, err := disklock.Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		v := villageOf(t, e)
		a := v.ok("me", "db")
		v.waits(1, "you", "db")
		h := v.ask("POST", "/v1/terraform/infra", lockBody("id"+strings.Repeat("x", start), "who"))
		if want := []int{200, 423}[start]; h.code != want {
			t.Errorf("start %d: %d %s, want %d", start, h.code, h.text, want)
		}
		if start == 1 && a.Fence != fence {
			t.Errorf("after the restart it has fence %d, want %d", a.Fence, fence)
		}
		fence = a.Fence
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
