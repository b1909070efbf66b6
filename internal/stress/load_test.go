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
