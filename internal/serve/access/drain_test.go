package access_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// A draining gate refuses new claims, and nothing else.
func TestDrainRefusesOnlyNewClaims(t *testing.T) {
	for _, options := range []access.Options{{}, {Uncounted: true}} {
		for _, open := range []bool{false, true} {
			s := newSite(t, access.Policy{Rules: []access.Rule{rule("ci", "lock", "*"), rule("ci", "drain", "*")}}, options)
			if open {
				s.engine = memlock.New()
				s.gate = access.New(s.engine, nil, options)
			}
			holder, waiter := s.user("ci", "h"), s.user("ci", "w")
			holder.takes("a")
			waiter.takes("wait", "a")
			first, err := holder.pass.Drain("a new version")
			second, _ := holder.pass.Drain("again")
			if why, draining := s.gate.Draining(); err != nil || !first || second || !draining || why != "a new version" {
				t.Fatalf("drains: %t, %t, %v: %q %t", first, second, err, why, draining)
			}
			_, err = holder.tries(holder.wants("b"))
			s.is("a new claim", err, lockkeeper.ErrUnavailable)
			s.is("a new claim", err, lockkeeper.Draining)
			again, err := waiter.tries(lockkeeper.Want{ID: 1, Wait: lockkeeper.Forever, Targets: waiter.wants("a").Targets})
			if err != nil || again.State != lockkeeper.Waiting {
				t.Errorf("the waiting claim, repeated: %s, %v", again.State, err)
			}
			raised := lockkeeper.Want{
				ID:       1,
				Revision: 1,
				Wait:     lockkeeper.Forever,
				Priority: 3,
				Targets:  waiter.wants("a").Targets,
			}
			if st, err := waiter.tries(raised); err != nil || st.Priority != 3 {
				t.Errorf("raised: %d, %v", st.Priority, err)
			}
			if _, err := waiter.Renew(t.Context(), waiter.key); err != nil {
				t.Error(err)
			}
			holder.releases(1)
			if refs := waiter.lists(lockkeeper.Query{Session: "w"}); len(refs) != 1 {
				t.Errorf("the waiter's session has claims %v", refs)
			}
			if st, err := holder.tries(lockkeeper.Want{ID: 1, Targets: holder.wants("a").Targets}); err != nil ||
				st.State != lockkeeper.Ended {
				t.Errorf("an ended claim, repeated: %s, %v", st.State, err)
			}
			waiter.releases(1)
			s.engine.Close()
		}
	}
}

// slowEngine delays claims before they arrive.
type slowEngine struct {
	lockkeeper.Engine
	arrives chan struct{}
}

func (e *slowEngine) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	<-e.arrives
	return e.Engine.Claim(ctx, k, w)
}

// A claim that the gate admitted just before a drain may reach the engine much later. Settled waits
// for it.
func TestDrainIsNotSettledWithClaimInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, access.Policy{Rules: []access.Rule{rule("ci", "lock", "*"), rule("ops", "drain", "*")}},
			access.Options{})
		slow := &slowEngine{s.engine, make(chan struct{})}
		s.open(slow, access.Options{})
		late, other, ops := s.user("ci", "late"), s.user("ci", "other"), s.user("ops", "o")
		settled := make(chan error, 1)
		go func() { settled <- s.gate.Settled(t.Context()) }()
		claimed := make(chan error, 1)
		go func() {
			_, err := late.tries(late.wants("db"))
			claimed <- err
		}()
		synctest.Wait()
		if _, err := ops.pass.Drain("a new version"); err != nil {
			t.Fatal(err)
		}
		_, err := other.tries(other.wants("db"))
		s.is("a new claim", err, lockkeeper.Draining)
		synctest.Wait()
		if len(settled) > 0 {
			t.Error("settled while a claim is in flight")
		}
		close(slow.arrives)
		if err := <-claimed; err != nil {
			t.Error(err)
		}
		if err := <-settled; err != nil {
			t.Error(err)
		}
		_, err = other.tries(other.wants("db"))
		s.is("a new claim", err, lockkeeper.Draining)
	})
}

// Without a claim in flight, a drain is settled at once.
func TestDrainWithoutClaimsIsSettledAtOnce(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	g := access.New(e, nil, access.Options{})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Settled(over); err == nil {
		t.Error("settled without a drain")
	}
	g.Drain("")
	if why, draining := g.Draining(); why == "" || !draining {
		t.Errorf("draining: %t, because %q", draining, why)
	}
	if err := g.Settled(t.Context()); err != nil {
		t.Error(err)
	}
}
