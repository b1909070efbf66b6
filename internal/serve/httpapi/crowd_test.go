package httpapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
)

// A visitor uses locks over HTTP as a script would: it takes them, renews them, gives
// them back, is slow, gives up, asks again, and vanishes.
type visitor struct {
	*world
	name     string
	random   *rand.Rand
	recorder *history.Recorder
	count    func(what string)
}

// TestCrowd: random clients over two slow servers: no two believe in the same lock at the same
// time.
func TestCrowd(t *testing.T) {
	seed := testmode.Seed(t)
	inMemory(t, 2, func(w *world) {
		for _, api := range w.apis {
			slow(api, rand.New(rand.NewPCG(seed, 1)))
		}
		recorder := history.NewRecorder(nil, nil)
		var mu sync.Mutex
		counts := map[string]int{}
		var running sync.WaitGroup
		for i := range 12 {
			v := &visitor{
				world:    w,
				name:     fmt.Sprint("v", i),
				random:   rand.New(rand.NewPCG(seed, uint64(i+2))),
				recorder: recorder,
			}
			v.count = func(what string) {
				mu.Lock()
				defer mu.Unlock()
				counts[what]++
			}
			running.Go(func() {
				for n := range 60 {
					v.visit(fmt.Sprintf("%s.%d", v.name, n))
				}
			})
		}
		running.Wait()
		t.Log(counts)
		for _, wrong := range history.Judge(recorder.Events(), history.Rules{Fences: true}) {
			t.Error(wrong)
		}
		for _, what := range []string{"granted", "refused", "unknown", "vanished", "repeated"} {
			if counts[what] < 5 {
				t.Errorf("%s only %d times: the test shows little", what, counts[what])
			}
		}
		w.pass(5 * time.Second)
		if !w.free() {
			t.Error("something is left that nobody has")
		}
	})
}

// slow has each request of the API come late, and its answer too.
func slow(api *API, random *rand.Rand) {
	var mu sync.Mutex
	late := func() {
		mu.Lock()
		d := time.Duration(random.Int64N(int64(300 * time.Millisecond)))
		mu.Unlock()
		idle(d)
	}
	for i := range api.routes {
		handle := api.routes[i].handle
		api.routes[i].handle = func(c *call) error {
			late()
			c.received = time.Now() // as if it had come only now
			defer late()
			return handle(c)
		}
	}
}

func (v *visitor) add(claim string, kind history.Kind, fill func(*history.Event)) {
	e := history.Event{Kind: kind, Client: v.name, Claim: claim}
	if fill != nil {
		fill(&e)
	}
	v.recorder.Add(e)
}

func (v *visitor) host() string { return []string{"server0", "server1"}[v.random.IntN(2)] }

// visit asks for one lock, and uses it.
func (v *visitor) visit(claim string) {
	path := []lockkeeper.Path{"db", "db/1", "db/2", "site"}[v.random.IntN(4)]
	target := lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive}
	body := fmt.Sprintf(`{"path":%q,"ttl":2,"wait":%d`, path, v.random.IntN(6))
	switch v.random.IntN(4) {
	case 0:
		target.Mode = lockkeeper.ModeShared
		body += `,"mode":"shared"`
	case 1:
		target = lockkeeper.Target{Path: path, Mode: lockkeeper.ModePermits, Units: 1, Limit: 2}
		body += `,"limit":2`
	}
	body += "}"
	v.add(claim, history.Ask, func(e *history.Event) { e.Targets = []lockkeeper.Target{target} })
	var headers []string
	if v.random.IntN(2) == 0 {
		headers = []string{"Idempotency-Key: " + claim}
	}
	ctx, cancel := v.Context(), context.CancelFunc(func() {})
	if v.random.IntN(3) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(v.random.IntN(3000))*time.Millisecond)
	}
	sent := time.Now()
	a, err := v.try(ctx, v.host(), "POST", "/v1/claims", body, headers...)
	cancel()
	for err != nil && headers != nil { // it knows how to ask again
		v.count("repeated")
		sent = time.Now()
		a, err = v.try(v.Context(), v.host(), "POST", "/v1/claims", body, headers...)
	}
	for err == nil && a.status == 202 {
		at := a.header.Get("Location")
		sent = time.Now()
		a, err = v.try(v.Context(), v.host(), "POST", at+"/renew?poll=5s", "")
		a.header.Set("Location", at)
		if a.status == 200 && a.State == lockkeeper.Waiting {
			a.status = 202
		}
	}
	switch {
	case err != nil:
		v.count("unknown")
		v.add(claim, history.Unknown, nil)
	case a.status == 201 || a.status == 200:
		v.count("granted")
		v.add(claim, history.Granted, func(e *history.Event) {
			e.Fence, e.Grants, e.Unconfirmed = a.Fence, a.Grants, a.Unconfirmed
		})
		v.use(claim, a, sent)
	case a.status == 409 || a.status == 410:
		v.count("refused")
		v.add(claim, history.Refused, func(e *history.Event) { e.Reason = lockkeeper.TimedOut })
	default:
		v.Errorf("%s: %d %s", claim, a.status, a.text)
		v.add(claim, history.Unknown, nil)
	}
}

// use holds the lock for some time. It counts from when it sent what was answered.
func (v *visitor) use(claim string, a answer, sent time.Time) {
	at := a.header.Get("Location")
	end := sent.Add(a.ttl)
	vanishes := v.random.IntN(5) == 0
	for range v.random.IntN(4) {
		idle(min(time.Duration(v.random.IntN(700))*time.Millisecond, time.Until(end)))
		if vanishes {
			continue
		}
		sent := time.Now()
		renewed, err := v.try(v.Context(), v.host(), "POST", at+"/renew", "")
		switch {
		case !time.Now().Before(end): // known too late
		case err == nil && renewed.status == 200:
			end = sent.Add(renewed.ttl)
		default:
			v.Errorf("%s: renewed with %s left: %d %s (%v)", claim, time.Until(end), renewed.status, renewed.text, err)
		}
	}
	if vanishes {
		idle(time.Until(end) - 1)
	}
	if vanishes || !time.Now().Before(end) {
		v.count("vanished")
		v.add(claim, history.Lost, func(e *history.Event) { e.Reason = lockkeeper.Expired })
		return
	}
	v.add(claim, history.Release, nil)
	released, err := v.try(v.Context(), v.host(), "DELETE", at, "")
	if err != nil || released.status != 204 && released.status != 410 && released.status != 404 {
		v.Errorf("%s: released: %d %s (%v)", claim, released.status, released.text, err)
	}
	v.add(claim, history.Released, nil)
}

// TestClientNeverCountsLonger: what is told is left, counted from sending, is over when
// the engine's lease is, at the latest.
func TestClientNeverCountsLonger(t *testing.T) {
	inMemory(t, 2, func(w *world) {
		slow(w.apis[0], rand.New(rand.NewPCG(1, 2)))
		for _, wait := range []string{"0", "3s"} {
			blocker := w.holds(`{"path":"db","ttl":"1s"}`)
			if wait == "0" {
				w.want(w.ask("DELETE", blocker.header.Get("Location"), ""), 204, "")
			}
			sent := time.Now()
			held := w.want(w.ask("POST", "/v1/claims", `{"path":"db","ttl":"2s","wait":"`+wait+`"}`), 201, "")
			idle(time.Until(sent.Add(held.ttl)) - 1)
			if w.state(held.Ref) != lockkeeper.Held {
				t.Errorf("wait %s: over before %s, which were told: %s", wait, held.ttl, strings.TrimSpace(held.text))
			}
			w.pass(5 * time.Second)
		}
	})
}
