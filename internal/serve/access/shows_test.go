package access

import (
	"context"
	"iter"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// asked is an engine that keeps the latest query.
type asked struct {
	lockkeeper.Engine
	query lockkeeper.Query
}

func (e *asked) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	e.query = q
	return e.Engine.List(ctx, q)
}

// Shows agrees with the List of the pass, and with the function Sees that the engine gets.
func TestShowsAgreesWithList(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	me, mine := NewToken()
	you, yours := NewToken()
	inner := &asked{Engine: e}
	g := New(inner, &Policy{
		Rules: []Rule{
			{Who: []string{"*"}, May: []Verb{Lock}, Paths: []string{"*"}},
			{Who: []string{"you"}, May: []Verb{Look}, Paths: []string{"open"}},
		},
		Tokens: []Token{{Name: "me", Digest: mine}, {Name: "you", Digest: yours}},
	}, Options{})
	pass := func(secret string) *Pass {
		p, err := g.Admit(Credentials{Token: secret})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, who := range []string{me, you} {
		lease, err := pass(who).Engine().Attach(t.Context(), lockkeeper.Session{ID: "s", TTL: lockkeeper.MaxTTL}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, path := range []lockkeeper.Path{"open", "open/below", "opener", "closed"} {
			want := lockkeeper.Want{
				ID:      uint64(i + 1),
				Wait:    lockkeeper.Forever,
				Targets: []lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}},
			}
			if _, err := pass(who).Engine().Claim(t.Context(), lease.Key, want); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, who := range []string{me, you} {
		listed := map[lockkeeper.Ref]bool{}
		for st := range pass(who).Engine().List(t.Context(), lockkeeper.Query{}) {
			listed[st.Ref] = true
			for _, b := range st.Blockers {
				listed[b.Ref] = true
			}
		}
		shown := map[lockkeeper.Ref]bool{}
		for st := range e.List(t.Context(), lockkeeper.Query{}) {
			_, ok := pass(who).Shows(st)
			if sees := inner.query.Sees(&st); sees != ok {
				t.Errorf("Sees reports for %s: %t, want %t", st.Ref, sees, ok)
			}
			if st, ok := pass(who).Shows(st); ok {
				shown[st.Ref] = true
				for _, b := range st.Blockers {
					shown[b.Ref] = true
				}
			}
		}
		if len(shown) != len(listed) || len(shown) == 8 && who == me {
			t.Errorf("shows %v, lists %v", shown, listed)
		}
		for ref := range listed {
			if !shown[ref] {
				t.Errorf("%s is listed and not shown", ref)
			}
		}
	}
	p := pass(me)
	g.Set(&Policy{})
	if _, ok := p.Shows(lockkeeper.Status{Ref: lockkeeper.Ref{Session: "me:s", ID: 1}}); ok {
		t.Error("a withdrawn pass shows a claim")
	}
}
