package httpapi

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// opener is an engine that records the calls that can make a claim. If held is not nil, a session that
// opens with its claim is safe when held is closed; opened gets an element when it has begun.
type opener struct {
	lockkeeper.Engine
	lockkeeper.GroupCommitter
	calls   []string
	settled int // number of decisions of BeginOpen that were settled
	held    chan struct{}
	opened  chan struct{}
}

func (o *opener) BeginOpen(ctx context.Context, s lockkeeper.Session, w lockkeeper.Want,
	notify func([]lockkeeper.Status)) (lockkeeper.Lease, lockkeeper.Commit, error) {
	o.calls = append(o.calls, "open")
	lease, _, err := o.GroupCommitter.BeginOpen(ctx, s, w, notify)
	if o.held != nil && err == nil {
		o.opened <- struct{}{}
		return lease, &heldCommit{o, o.held}, nil
	}
	safe := make(chan struct{})
	close(safe)
	return lease, &heldCommit{o, safe}, err
}

func (o *opener) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	o.calls = append(o.calls, "attach")
	return o.Engine.Attach(ctx, s, notify)
}

func (o *opener) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	o.calls = append(o.calls, "claim")
	return o.Engine.Claim(ctx, k, w)
}

type heldCommit struct {
	of   *opener
	safe chan struct{}
}

func (c *heldCommit) Done() <-chan struct{} { return c.safe }

func (c *heldCommit) Finish() error {
	c.of.settled++
	select {
	case <-c.safe:
		return nil
	default:
		return lockkeeper.ErrUnavailable
	}
}

func newOpener(t *testing.T) (*opener, *API) {
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	o := &opener{Engine: e, GroupCommitter: e.(lockkeeper.GroupCommitter), opened: make(chan struct{}, 1)}
	return o, New(access.New(o, nil, access.Options{}), Options{})
}

const onDB = `{"path":"db"}`

// A POST of a new claim is one call of an engine that can open a session with its claim, and two of
// another one. A repeat finds the claim at another server too. Each decision is settled.
func TestNewClaimIsOneCall(t *testing.T) {
	o, api := newOpener(t)
	plain := New(access.New(struct{ lockkeeper.Engine }{o}, nil, access.Options{}), Options{})
	other := New(access.New(o, nil, access.Options{}), Options{})
	for _, c := range []struct {
		api   *API
		key   string
		calls []string
	}{
		{api, "a", []string{"open"}},
		{other, "a", []string{"open", "attach", "attach", "claim"}},
		{plain, "b", []string{"attach", "claim"}},
	} {
		o.calls = nil
		w := direct(t.Context(), c.api, "", "POST", "/v1/claims", `{"path":"db/`+c.key+`"}`, "Idempotency-Key", c.key)
		if w.Code != http.StatusCreated || !slices.Equal(o.calls, c.calls) {
			t.Errorf("%d by %v, want %v: %s", w.Code, o.calls, c.calls, w.Body)
		}
	}
	o.calls = nil
	if w := direct(t.Context(), api, "", "POST", "/v1/claims", `{"path":"db"}`); w.Code != http.StatusConflict ||
		!slices.Equal(o.calls, []string{"open"}) {
		t.Errorf("a claim that is taken: %d by %v", w.Code, o.calls)
	}
	if o.settled != 3 {
		t.Errorf("%d of 3 decisions are settled", o.settled)
	}
	if n := len(open(t, o)); n != 2 {
		t.Errorf("%d claims remain, want 2", n)
	}
}

// open returns the live claims of an engine.
func open(t *testing.T, e lockkeeper.Engine) (all []lockkeeper.Status) {
	for st, err := range e.List(t.Context(), lockkeeper.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, st)
	}
	return all
}

// A client that goes away before its new claim is safe leaves none, unless it has a key: then a repeat
// gets the same claim.
func TestClientLeavesBeforeItsClaimIsSafe(t *testing.T) {
	for _, key := range []string{"", "k"} {
		o, api := newOpener(t)
		o.held = make(chan struct{})
		header := []string{"Idempotency-Key", key}
		if key == "" {
			header = nil
		}
		ctx, leave := context.WithCancel(t.Context())
		answered := make(chan int, 1)
		go func() { answered <- direct(ctx, api, "", "POST", "/v1/claims", onDB, header...).Code }()
		select {
		case <-o.opened:
		case code := <-answered:
			t.Fatalf("the answer is %d", code)
		}
		before := open(t, o)
		leave()
		if code := <-answered; code < 400 {
			t.Errorf("key %q: the answer is %d before the claim is safe", key, code)
		}
		close(o.held)
		w := direct(t.Context(), api, "", "POST", "/v1/claims", onDB, header...)
		after := open(t, o)
		if len(before) != 1 || w.Code != http.StatusCreated || len(after) != 1 {
			t.Fatalf("key %q: %d claims, then %d and %d: %s", key, len(before), w.Code, len(after), w.Body)
		}
		if same := before[0].Fence == after[0].Fence; same != (key != "") {
			t.Errorf("key %q: the repeat has the same claim: %v", key, same)
		}
		o.held = nil
	}
}
