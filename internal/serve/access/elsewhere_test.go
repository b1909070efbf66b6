package access_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// callersEngine notes who called it last.
type callersEngine struct {
	lockkeeper.Engine
	by access.Caller
}

func (e *callersEngine) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (
	lockkeeper.Lease, error) {
	e.by = access.CallerOf(ctx)
	return e.Engine.Attach(ctx, s, notify)
}

func (e *callersEngine) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	e.by = access.CallerOf(ctx)
	return e.Engine.Claim(ctx, k, w)
}

func (e *callersEngine) End(ctx context.Context, k lockkeeper.Key, x lockkeeper.Ending) error {
	e.by = access.CallerOf(ctx)
	return e.Engine.End(ctx, k, x)
}

// If the engine decides, the gate authenticates, tells the engine who calls, and keeps sessions apart.
// It refuses nothing by rules and quotas, which it may not have in their latest state.
func TestGateBeforeAnEngineThatDecides(t *testing.T) {
	e := &callersEngine{Engine: memlock.New()}
	defer e.Close()
	secret, digest := access.NewToken()
	p := &access.Policy{
		Rules:     []access.Rule{{Who: []string{"ops"}, May: []access.Verb{access.Look}, Paths: []string{"*"}}},
		Quotas:    []access.Quota{{Who: []string{"*"}, Claims: 1, LongestTTL: duration.Span(time.Second)}},
		Tokens:    []access.Token{{Name: "ci", Digest: digest}},
		Elsewhere: true,
	}
	var acts []access.Act
	gate := access.New(e, p, access.Options{Callers: true, Acted: func(a access.Act) { acts = append(acts, a) }})
	pass, err := gate.Admit(access.Credentials{Token: secret, From: "10.0.0.9:5"})
	if err != nil {
		t.Fatalf("an identity that no rule names: %v", err)
	}
	ci := pass.Engine()
	lease, err := ci.Attach(t.Context(), lockkeeper.Session{ID: "s", TTL: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	by := access.Caller{Name: "ci", From: "10.0.0.9:5", Undecided: true}
	want := lockkeeper.Want{Targets: []lockkeeper.Target{{Path: "x", Mode: lockkeeper.ModeExclusive}}}
	for id := range uint64(2) {
		want.ID, want.Targets[0].Path = id+1, []lockkeeper.Path{"x", "y"}[id]
		if _, err := ci.Claim(t.Context(), lease.Key, want); err != nil || e.by != by {
			t.Errorf("claim %d: %v, the caller is %v", id+1, err, e.by)
		}
	}
	e.by = access.Caller{}
	revoke := lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: lockkeeper.Ref{Session: "s", ID: 1}, Force: true}
	if err := ci.End(t.Context(), lease.Key, revoke); err != nil || e.by != by || len(acts) > 0 {
		t.Errorf("a revocation: %v by %v, acts %v: want it to be the engine's", err, e.by, acts)
	}
	if _, err := ci.Attach(t.Context(), lockkeeper.Session{ID: "ops:s", TTL: time.Minute}, nil); !errors.Is(err,
		lockkeeper.ErrInvalid) {
		t.Errorf("a session of another identity: %v", err)
	}
	var listed error
	for _, err := range ci.List(t.Context(), lockkeeper.Query{Meets: "free"}) {
		listed = err
	}
	if !errors.Is(listed, lockkeeper.ErrDenied) || !strings.Contains(listed.Error(), "no rule allows it anything") {
		t.Errorf("a list of a path: %v", listed)
	}
	if err := pass.May(access.Drain, ""); !errors.Is(err, lockkeeper.ErrDenied) {
		t.Errorf("a drain of this server: %v", err)
	}
	gate.Set(&access.Policy{Closed: "closed for a reason", Tokens: p.Tokens})
	_, err = gate.Admit(access.Credentials{Token: secret})
	if !errors.Is(err, lockkeeper.ErrDenied) || !strings.Contains(err.Error(), "closed for a reason") {
		t.Errorf("a closed server: %v", err)
	}
	if _, err := ci.Renew(t.Context(), lease.Key); !errors.Is(err, lockkeeper.ErrDenied) {
		t.Errorf("a pass from before: %v", err)
	}
}

func TestPolicyIsDecodedAsItWasEncoded(t *testing.T) {
	highest := -3
	p := &access.Policy{
		Rules: []access.Rule{{Who: []string{"ci"}, May: []access.Verb{access.Lock}, Paths: []string{"a/b", "*"}}},
		Quotas: []access.Quota{{
			Who: []string{"*"}, Claims: 2, LongestTTL: duration.Span(90 * time.Second), HighestPriority: &highest,
		}},
	}
	text, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := access.DecodePolicy(text)
	if err != nil || len(got.Rules) != 1 || got.Rules[0].Paths[1] != "*" || got.Quotas[0].Claims != 2 ||
		got.Quotas[0].LongestTTL != p.Quotas[0].LongestTTL || *got.Quotas[0].HighestPriority != highest {
		t.Errorf("%s was read as %+v, %v", text, got, err)
	}
	for _, wrong := range []string{"", "{}", `{"form":2,"rules":[]}`, `{"form":1,"rules":[{"who":["a b"]}]}`,
		`{"form":1,"rules":[],"x":1}`} {
		if _, err := access.DecodePolicy([]byte(wrong)); err == nil {
			t.Errorf("%q is a policy", wrong)
		}
	}
	if _, err := (&access.Policy{Rules: []access.Rule{{}}}).Encode(); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("a wrong policy: %v", err)
	}
}
