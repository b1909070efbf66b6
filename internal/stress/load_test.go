package stress_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/stress"
)

// shared keeps the engine open when a client closes it.
type shared struct{ lockkeeper.Engine }

func (shared) Close() error { return nil }

// TestLoadOnSoundEngine finds no fault in several rounds.
func TestLoadOnSoundEngine(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	c := stress.New(1, history.RulesOf(e.Guarantees()))
	for range 4 {
		c.Add("client", shared{e}, 2, lockkeeper.SessionTTL(lockkeeper.MinTTL))
	}
	for range 3 {
		granted := c.Granted.Load()
		for c.Granted.Load() < granted+100 {
			<-time.After(time.Millisecond)
		}
		c.Pause()
		for _, wrong := range c.Faults() {
			t.Error(wrong)
		}
		c.Resume()
	}
	c.Pause()
	if err := stress.CheckFree(shared{e}, 10*time.Second); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	t.Log(c)
}

// exclusiveEngine claims exclusive locks on paths of one part alone, and records other requests.
type exclusiveEngine struct {
	shared
	t *testing.T
}

func (e exclusiveEngine) Guarantees() lockkeeper.Guarantees {
	g := e.shared.Guarantees()
	g.Features &^= lockkeeper.FeatureShared | lockkeeper.FeaturePermits | lockkeeper.FeatureHierarchy
	g.FenceScope = lockkeeper.FencesPerPath
	return g
}

func (e exclusiveEngine) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if err := e.Guarantees().Refuse(&w); err != nil {
		e.t.Error(err)
	}
	return e.shared.Claim(ctx, k, w)
}

// TestLoadRequestsWhatIsClaimed: an engine is not asked for features that it does not claim.
func TestLoadRequestsWhatIsClaimed(t *testing.T) {
	own := memlock.New()
	defer own.Close()
	e := exclusiveEngine{shared{own}, t}
	c := stress.New(1, history.RulesOf(e.Guarantees()))
	c.Add("client", e, 4, lockkeeper.SessionTTL(lockkeeper.MinTTL))
	for c.Granted.Load() < 100 {
		<-time.After(time.Millisecond)
	}
	c.Pause()
	for _, wrong := range c.Faults() {
		t.Error(wrong)
	}
	if err := stress.CheckFree(e, 10*time.Second); err != nil {
		t.Error(err)
	}
	_ = c.Close()
}

// unsafeEngine is an engine that grants claims that should wait.
type unsafeEngine struct{ shared }

func (e unsafeEngine) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	s, err := e.shared.Claim(ctx, k, w)
	if err == nil && s.State == lockkeeper.Waiting {
		s.State, s.Fence, s.Change = lockkeeper.Held, uint64(time.Now().UnixNano()), s.Change+1
		for _, t := range w.Targets {
			s.Grants = append(s.Grants, lockkeeper.Grant{Target: t})
		}
	}
	return s, err
}

// TestFaultsOfUnsafeEngine: an engine without exclusion is found out.
func TestFaultsOfUnsafeEngine(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	c := stress.New(1, history.RulesOf(e.Guarantees()))
	for range 4 {
		c.Add("client", unsafeEngine{shared{e}}, 2, lockkeeper.SessionTTL(lockkeeper.MinTTL))
	}
	for c.Granted.Load() < 100 {
		<-time.After(time.Millisecond)
	}
	c.Pause()
	verdict := strings.Join(c.Faults(), "\n")
	if !strings.Contains(verdict, "exclusion: ") {
		t.Errorf("the faults of an engine without exclusion are:\n%s", verdict)
	}
	_ = c.Close()
}

// TestCheckFree: a held path is not free.
func TestCheckFree(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	c := lockkeeper.New(shared{e})
	defer c.Close()
	if _, err := c.Lock(t.Context(), string(stress.Paths[0])); err != nil {
		t.Fatal(err)
	}
	if err := stress.CheckFree(shared{e}, 10*time.Millisecond); err == nil {
		t.Error("free, although it is held")
	}
}
