package httpapi

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// TestOneClaim: the life of a claim, by the requests that curl would send.
func TestOneClaim(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		held := w.holds(`{"path":"db/x","as":"ci"}`)
		if held.State != lockkeeper.Held || held.Fence == 0 || held.ttl != 30*time.Second ||
			held.header.Get("Location") != "/v1/claims/"+held.Ref.String() {
			t.Errorf("%s at %s, ttl %s", held.text, held.header.Get("Location"), held.ttl)
		}
		at := held.header.Get("Location")
		taken := w.want(w.ask("POST", "/v1/claims", `{"path":"db"}`), 409, "not-acquired")
		if len(taken.blocked) != 1 || taken.blocked[0].As != "ci" ||
			taken.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("refused with %s", taken.text)
		}
		w.pass(20 * time.Second)
		if a := w.want(w.ask("POST", at+"/renew", ""), 200, ""); a.ttl != 30*time.Second || a.Fence != held.Fence {
			t.Errorf("renewed: %s", a.text)
		}
		w.pass(20 * time.Second)
		if a := w.want(w.ask("GET", at, ""), 200, ""); a.State != lockkeeper.Held || a.ttl != 0 || a.Age != 40*time.Second {
			t.Errorf("looked at: %s", a.text)
		}
		w.want(w.ask("DELETE", at, ""), 204, "")
		if !w.free() {
			t.Error("released, and something is there")
		}
		w.want(w.ask("DELETE", at, ""), 404, "unknown-claim")
		w.want(w.ask("GET", at, ""), 404, "unknown-claim")
		w.want(w.ask("POST", at+"/renew", ""), 404, "unknown-claim")
		if !w.free() {
			t.Error("a renewal has made something")
		}
	})
}

// TestExpiry: what is not renewed ends with its TTL, and a renewal brings nothing back.
func TestExpiry(t *testing.T) {
	inMemory(t, 2, func(w *world) {
		held := w.holds(`{"path":"db","ttl":"2s"}`)
		w.pass(1999 * time.Millisecond)
		if w.state(held.Ref) != lockkeeper.Held {
			t.Error("not held for its TTL")
		}
		w.pass(time.Millisecond)
		for _, host := range []string{"server0", "server1"} {
			a, err := w.try(w.Context(), host, "POST", held.header.Get("Location")+"/renew", "")
			if err != nil || a.status != 410 && a.status != 404 {
				t.Errorf("%s: %d %s (%v)", host, a.status, a.text, err)
			}
		}
		if !w.free() {
			t.Error("it is back")
		}
	})
}

// TestWaiting: a POST waits, keeps its claim alive, and returns the grant.
func TestWaiting(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		held := w.holds(`{"path":"db","ttl":"1h"}`)
		done := make(chan answer, 1)
		go func() { done <- w.ask("POST", "/v1/claims?poll=1m", `{"path":"db","wait":"forever","ttl":3}`) }()
		w.pass(50 * time.Second)
		w.want(w.ask("DELETE", held.header.Get("Location"), ""), 204, "")
		w.pass(0)
		select {
		case a := <-done:
			w.want(a, 201, "")
			// Counted from when it was sent, 50 s ago, it lives until 3 s after the grant.
			if a.State != lockkeeper.Held || a.ttl != 53*time.Second {
				t.Errorf("%s, want held and 53s", a.text)
			}
		default:
			t.Fatal("granted, and not told")
		}
		w.holds(`{"path":"other","ttl":"1h"}`)
		waits := w.want(w.ask("POST", "/v1/claims?poll=2s", `{"path":"other","wait":60,"ttl":3}`), 202, "")
		if waits.State != lockkeeper.Waiting || waits.Position != 1 || len(waits.Blockers) != 1 || waits.ttl < 3*time.Second {
			t.Errorf("waits: %s", waits.text)
		}
		w.pass(2900 * time.Millisecond)
		if w.state(waits.Ref) != lockkeeper.Waiting {
			t.Error("its place did not live for a TTL")
		}
		w.pass(time.Second)
		if w.state(waits.Ref) == lockkeeper.Waiting {
			t.Error("a place of nobody lives on")
		}
	})
}

// TestWaitIsOver: the answer names the timeout of a wait.
func TestWaitIsOver(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		w.holds(`{"path":"db","ttl":"1h"}`)
		began := time.Now()
		a := w.want(w.ask("POST", "/v1/claims", `{"path":"db","wait":"5s"}`), 409, "not-acquired")
		if took := time.Since(began); took != 5*time.Second || !strings.Contains(a.text, `"reason":"timed out"`) ||
			len(a.blocked) != 1 {
			t.Errorf("after %s: %s", took, a.text)
		}
	})
}

// TestClaimEndsWhenItsClientGoesAway: a claim whose client went away before it could know its name
// is given back, at any moment; one with a key lives for its TTL.
func TestClaimEndsWhenItsClientGoesAway(t *testing.T) {
	for _, c := range []struct {
		name, key string
		gone      bool
	}{{"without a key", "", true}, {"with a key", "job-7", false}} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, 1, func(w *world) {
				held := w.holds(`{"path":"db","ttl":"1h"}`)
				ctx, cancel := context.WithCancel(w.Context())
				ended := make(chan struct{})
				var headers []string
				if c.key != "" {
					headers = []string{"Idempotency-Key: " + c.key}
				}
				go func() {
					defer close(ended)
					_, _ = w.try(ctx, "server0", "POST", "/v1/claims?poll=1m", `{"path":"db","wait":"forever"}`, headers...)
				}()
				w.pass(25 * time.Second)
				cancel()
				<-ended
				w.pass(0)
				w.want(w.ask("DELETE", held.header.Get("Location"), ""), 204, "")
				if w.free() != c.gone {
					t.Errorf("is gone: %t, want %t", w.free(), c.gone)
				}
				if !c.gone {
					again := w.want(w.ask("POST", "/v1/claims?poll=1m", `{"path":"db","wait":"forever"}`, headers...), 201, "")
					if again.State != lockkeeper.Held {
						t.Errorf("asked again: %s", again.text)
					}
				}
				w.pass(31 * time.Second)
				if !w.free() {
					t.Error("it lives on though nobody renews it")
				}
			})
		})
	}
}

// TestIdempotency: the same key is the same claim, on any server; another request
// under it is refused; and once ended it stays so for a TTL.
func TestIdempotency(t *testing.T) {
	inMemory(t, 2, func(w *world) {
		key := "Idempotency-Key: deploy 7"
		first := w.holds(`{"path":"db"}`, key)
		for _, host := range []string{"server0", "server1", "server0"} {
			a, err := w.try(w.Context(), host, "POST", "/v1/claims", `{"path":"db"}`, key)
			if err != nil || a.status != 201 || a.Ref != first.Ref || a.Fence != first.Fence {
				t.Errorf("%s: repeated: %d %s (%v), want the claim that there is", host, a.status, a.text, err)
			}
		}
		other := w.want(w.ask("POST", "/v1/claims", `{"path":"other"}`, key), 400, "invalid")
		if !strings.HasSuffix(other.Detail, " was made for another request: use another Idempotency-Key") {
			t.Errorf("another request: %s", other.text)
		}
		w.want(w.ask("DELETE", first.header.Get("Location"), ""), 204, "")
		w.pass(29 * time.Second)
		w.want(w.ask("POST", "/v1/claims", `{"path":"db"}`, key), 410, "lost")
		w.pass(2 * time.Second)
		if again := w.holds(`{"path":"db"}`, key); again.Fence == first.Fence {
			t.Errorf("a TTL later: %s", again.text)
		}
	})
}

// TestDoubledAtOnce: many requests with one key at the same moment make one claim.
func TestDoubledAtOnce(t *testing.T) {
	inMemory(t, 2, func(w *world) {
		answers := make(chan answer)
		for i := range 20 {
			go func() {
				a, err := w.try(w.Context(), []string{"server0", "server1"}[i%2], "POST", "/v1/claims", `{"path":"db"}`,
					"Idempotency-Key: one")
				if err != nil {
					t.Error(err)
				}
				answers <- a
			}()
		}
		fences := map[uint64]bool{}
		for range 20 {
			a := <-answers
			if a.status != 201 {
				t.Errorf("%d %s", a.status, a.text)
			}
			fences[a.Fence] = true
		}
		if len(fences) != 1 {
			t.Errorf("fences %v, want one", fences)
		}
	})
}

// TestTwoServers: two servers that renew one claim at once don't end it, and a
// server that began later knows how to renew it.
func TestTwoServers(t *testing.T) {
	inMemory(t, 2, func(w *world) {
		held := w.holds(`{"path":"db","ttl":"5s"}`)
		for i := range 20 {
			answers := make(chan answer)
			for _, host := range []string{"server0", "server1"} {
				go func() {
					a, _ := w.try(w.Context(), host, "POST", held.header.Get("Location")+"/renew", "")
					answers <- a
				}()
			}
			for range 2 {
				if a := <-answers; a.status != 200 || a.ttl < 5*time.Second || a.Fence != held.Fence {
					t.Fatalf("round %d: %d %s", i, a.status, a.text)
				}
			}
			w.pass(4 * time.Second)
		}
		a, err := w.try(w.Context(), "server1", "DELETE", held.header.Get("Location"), "")
		if err != nil || a.status != 204 || !w.free() {
			t.Errorf("%d %s (%v)", a.status, a.text, err)
		}
	})
}

// TestPolls: a look waits for news; a renewal too, and keeps the claim alive.
func TestPolls(t *testing.T) {
	inMemory(t, 2, func(w *world) {
		held := w.holds(`{"path":"db","ttl":"1h"}`)
		waits := w.want(w.ask("POST", "/v1/claims?poll=0", `{"path":"db","wait":"forever","ttl":"4s"}`), 202, "")
		at := waits.header.Get("Location")
		renewed, looked := make(chan answer, 1), make(chan answer, 1)
		go func() {
			a, _ := w.try(w.Context(), "server1", "POST", at+"/renew?poll=25s", "")
			renewed <- a
		}()
		go func() { looked <- w.ask("GET", at+"?poll=30s", "") }()
		w.pass(20 * time.Second)
		w.want(w.ask("DELETE", held.header.Get("Location"), ""), 204, "")
		if a := <-renewed; a.status != 200 || a.State != lockkeeper.Held || a.ttl != 24*time.Second {
			t.Errorf("renewed: %d %s", a.status, a.text)
		}
		if a := <-looked; a.status != 200 || a.State != lockkeeper.Held {
			t.Errorf("looked: %d %s", a.status, a.text)
		}
		began := time.Now()
		a := w.want(w.ask("POST", at+"/renew?poll=10s&change=999", ""), 200, "")
		if took := time.Since(began); took != 10*time.Second || a.ttl != 14*time.Second {
			t.Errorf("nothing new is told after %s: %s", took, a.text)
		}
	})
}

// TestShutdown: a poll is answered as it stands when its server ends, and the claim
// goes on at another.
func TestShutdown(t *testing.T) {
	inMemory(t, 2, func(w *world) {
		w.holds(`{"path":"db","ttl":"1h"}`)
		told := make(chan answer, 1)
		go func() { told <- w.ask("POST", "/v1/claims?poll=1m", `{"path":"db","wait":"1h"}`) }()
		w.pass(10 * time.Second)
		w.apis[0].stop()
		a := w.want(<-told, 202, "")
		if a.ttl != 40*time.Second || a.Position != 1 {
			t.Errorf("told %s", a.text)
		}
		b, err := w.try(w.Context(), "server1", "POST", a.header.Get("Location")+"/renew", "")
		if err != nil || b.status != 200 || b.Ticket != a.Ticket {
			t.Errorf("at another server: %d %s (%v)", b.status, b.text, err)
		}
	})
}

// TestReleaseIsForgotten: a release ends the session of the claim, so a repeat finds no claim, also if the first one
// has told how the claim had ended. A claim with an Idempotency-Key is remembered for its TTL.
func TestReleaseIsForgotten(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		at := w.holds(`{"path":"db"}`).header.Get("Location")
		w.want(w.ask("DELETE", at, ""), 204, "")
		w.want(w.ask("DELETE", at, ""), 404, "unknown-claim")

		at = w.holds(`{"path":"db"}`).header.Get("Location")
		w.want(w.ask("POST", at+"/revoke", `{"force":true}`), 200, "")
		for _, ask := range []func() answer{
			func() answer { return w.ask("POST", at+"/renew", "") },
			func() answer { return w.ask("POST", at+"/renew", "") },
			func() answer { return w.ask("DELETE", at, "") },
		} {
			if a := w.want(ask(), 410, "lost"); !strings.Contains(a.text, `"reason":"revoked"`) {
				t.Errorf("after a revoke: %s", a.text)
			}
		}
		w.want(w.ask("POST", at+"/renew", ""), 404, "unknown-claim")
		w.want(w.ask("DELETE", at, ""), 404, "unknown-claim")

		at = w.holds(`{"path":"db"}`, "Idempotency-Key: k").header.Get("Location")
		w.want(w.ask("DELETE", at, ""), 204, "")
		for range 2 {
			if a := w.want(w.ask("DELETE", at, ""), 410, "lost"); !strings.Contains(a.text, `"reason":"released"`) {
				t.Errorf("with a key: %s", a.text)
			}
		}
		w.pass(31 * time.Second)
		w.want(w.ask("DELETE", at, ""), 404, "unknown-claim")
	})
}

// TestAmend: priority, limit and mode.
func TestAmend(t *testing.T) {
	inMemory(t, 2, func(w *world) {
		a := w.holds(`{"path":"site","mode":"shared"}`)
		b := w.holds(`{"path":"site","mode":"shared","steal":"ask","priority":1}`)
		if tried := w.want(w.ask("PATCH", a.header.Get("Location"), `{"mode":"exclusive"}`), 409,
			"not-acquired"); !strings.Contains(tried.Detail,
			`GET /v1/why?path=site names them, and with "wait" the conversion waits`) {
			w.Errorf("%s, want what to do", tried.text)
		}
		up := make(chan answer, 1)
		go func() { up <- w.ask("PATCH", a.header.Get("Location"), `{"mode":"exclusive","wait":"10s"}`) }()
		w.pass(3 * time.Second)
		w.want(w.ask("DELETE", b.header.Get("Location"), ""), 204, "")
		if got := <-up; got.status != 200 || got.Grants[0].Mode != lockkeeper.ModeExclusive || got.Fence <= a.Fence {
			t.Errorf("upgraded: %d %s", got.status, got.text)
		}
		down, err := w.try(w.Context(), "server1", "PATCH", a.header.Get("Location"), `{"mode":"shared","priority":3}`)
		if err != nil || down.status != 200 || down.Grants[0].Mode != lockkeeper.ModeShared || down.Priority != 3 {
			t.Errorf("downgraded: %d %s (%v)", down.status, down.text, err)
		}
		w.want(w.ask("PATCH", a.header.Get("Location"), `{"priority":1}`), 400, "invalid")
		w.want(w.ask("PATCH", a.header.Get("Location"), `{}`), 400, "invalid")
		w.holds(`{"path":"snmp","limit":1}`)
		c := w.want(w.ask("POST", "/v1/claims?poll=0", `{"path":"snmp","limit":1,"wait":"1m"}`), 202, "")
		if got := w.want(w.ask("PATCH", c.header.Get("Location"), `{"limit":2}`), 200, ""); got.State != lockkeeper.Held ||
			got.Grants[0].InUse != 2 {
			t.Errorf("a larger limit: %s", got.text)
		}
	})
}

// TestOthersClaims: what was made by other means is looked at, not acted for.
func TestOthersClaims(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		c := lockkeeper.New(w.engine)
		defer c.Close()
		hold, err := c.Lock(w.Context(), "db")
		if err != nil {
			t.Fatal(err)
		}
		defer hold.Close()
		var ref string
		for st := range w.engine.List(w.Context(), lockkeeper.Query{}) {
			ref = st.Ref.String()
		}
		at := "/v1/claims/" + ref
		w.want(w.ask("GET", at, ""), 200, "")
		w.want(w.ask("DELETE", at, ""), 403, "denied")
		w.want(w.ask("POST", at+"/renew", ""), 403, "denied")
		w.want(w.ask("PATCH", at, `{"priority":1}`), 403, "denied")
		if hold.Err() != nil {
			t.Error(hold.Err())
		}
	})
}

// TestHeard: a hold is taken in peace if its holder has shown that it knows of it;
// of one that only asked the answer may have been lost.
func TestHeard(t *testing.T) {
	for _, shows := range []bool{false, true} {
		inMemory(t, 1, func(w *world) {
			held := w.holds(`{"path":"db"}`)
			at := held.header.Get("Location")
			thief := make(chan answer, 1)
			go func() {
				thief <- w.ask("POST", "/v1/claims", `{"path":"db","priority":1,"steal_after":"6s","wait":"1m"}`)
			}()
			w.pass(time.Second)
			asked := w.want(w.ask("POST", at+"/renew", ""), 200, "")
			if asked.Asked == nil || asked.Asked.Left != 5*time.Second || asked.Asked.Reason != lockkeeper.Stolen {
				t.Fatalf("asked: %s", asked.text)
			}
			w.pass(time.Second)
			if shows {
				w.want(w.ask("POST", fmt.Sprintf("%s/renew?change=%d", at, asked.Change), ""), 200, "")
			}
			w.pass(5 * time.Second)
			if got := w.want(<-thief, 201, ""); got.Unconfirmed == shows {
				t.Errorf("the holder shows that it knows: %t; the grant is unconfirmed: %t", shows, got.Unconfirmed)
			}
			w.want(w.ask("POST", at+"/renew", ""), 410, "lost")
		})
	}
}

// TestStealAfterPartOfTTL: steal_after may be a part of the holder's TTL. What the engine does not
// measure is refused, and what is out of range too.
func TestStealAfterPartOfTTL(t *testing.T) {
	inMemory(t, 1, func(w *world) {
		at := w.holds(`{"path":"db"}`).header.Get("Location") // for 30 s
		for after, refusal := range map[string]string{"1.5ttl": "invalid", "0ttl": "invalid", "auto": "unsupported",
			"ttl": "invalid"} {
			status := map[string]int{"invalid": 400, "unsupported": 501}[refusal]
			w.want(w.ask("POST", "/v1/claims", `{"path":"db","priority":1,"wait":"1m","steal_after":"`+after+`"}`), status,
				refusal)
		}
		thief := make(chan answer, 1)
		go func() {
			thief <- w.ask("POST", "/v1/claims", `{"path":"db","priority":1,"steal_after":"0.2ttl","wait":"1m"}`)
		}()
		w.pass(time.Second)
		asked := w.want(w.ask("POST", at+"/renew", ""), 200, "")
		if asked.Asked == nil || asked.Asked.Left != 5*time.Second || asked.Asked.Reason != lockkeeper.Stolen {
			t.Fatalf("asked: %s", asked.text)
		}
		w.pass(5 * time.Second)
		w.want(<-thief, 201, "")
	})
}

// TestOutage: while the engine does not answer, a poll goes on asking; what can't be
// answered is never said to be taken.
func TestOutage(t *testing.T) {
	inMemory(t, 0, func(w *world) {
		e := &down{Engine: w.engine}
		w.engine = e
		w.serve()
		w.engine = e.Engine
		held := w.holds(`{"path":"db","ttl":"1h"}`)
		told := make(chan answer, 1)
		go func() { told <- w.ask("POST", "/v1/claims?poll=1m", `{"path":"db","wait":"1h","ttl":"30s"}`) }()
		w.pass(8 * time.Second)
		e.down.Store(true)
		a := w.want(w.ask("POST", held.header.Get("Location")+"/renew", ""), 503, "unavailable")
		if a.header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After: %q", a.header.Get("Retry-After"))
		}
		w.want(w.ask("POST", "/v1/claims", `{"path":"db"}`), 503, "unavailable")
		w.pass(15 * time.Second)
		e.down.Store(false)
		w.pass(2 * time.Second)
		w.want(w.ask("DELETE", held.header.Get("Location"), ""), 204, "")
		w.want(<-told, 201, "")
	})
}

// A down engine answers nothing as long as it is down.
type down struct {
	lockkeeper.Engine
	down atomic.Bool
}

func (e *down) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	if e.down.Load() {
		return lockkeeper.Lease{}, lockkeeper.ErrUnavailable
	}
	return e.Engine.Attach(ctx, s, notify)
}

func (e *down) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	if e.down.Load() {
		return lockkeeper.Lease{}, lockkeeper.ErrUnavailable
	}
	return e.Engine.Renew(ctx, k)
}
