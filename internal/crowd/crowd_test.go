package crowd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/crowd"
)

// shared leaves the engine open when a client closes it.
type shared struct{ lockkeeper.Engine }

func (shared) Close() error { return nil }

// A crowd on a sound engine finds nothing wrong, leg after leg.
func TestCrowd(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	c := crowd.New(1, history.RulesOf(e.Guarantees()))
	for range 4 {
		c.Join("client", shared{e}, 2, lockkeeper.SessionTTL(lockkeeper.MinTTL))
	}
	for range 3 {
		granted := c.Granted.Load()
		for c.Granted.Load() < granted+100 {
			<-time.After(time.Millisecond)
		}
		c.Rest()
		for _, wrong := range c.Verdict() {
			t.Error(wrong)
		}
		c.Work()
	}
	c.Rest()
	if err := crowd.Free(shared{e}, 10*time.Second); err != nil {
		t.Error(err)
	}
	if err := c.Disperse(); err != nil {
		t.Error(err)
	}
	t.Log(c)
}

// careless is an engine that lets in who should wait.
type careless struct{ shared }

func (e careless) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	s, err := e.shared.Claim(ctx, k, w)
	if err == nil && s.State == lockkeeper.Waiting {
		s.State, s.Fence, s.Change = lockkeeper.Held, uint64(time.Now().UnixNano()), s.Change+1
		for _, t := range w.Targets {
			s.Grants = append(s.Grants, lockkeeper.Grant{Target: t})
		}
	}
	return s, err
}

// What is wrong is found.
func TestVerdict(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	c := crowd.New(1, history.RulesOf(e.Guarantees()))
	for range 4 {
		c.Join("client", careless{shared{e}}, 2, lockkeeper.SessionTTL(lockkeeper.MinTTL))
	}
	for c.Granted.Load() < 100 {
		<-time.After(time.Millisecond)
	}
	c.Rest()
	verdict := strings.Join(c.Verdict(), "\n")
	if !strings.Contains(verdict, "exclusion: ") {
		t.Errorf("the verdict on an engine that excludes nobody is:\n%s", verdict)
	}
	_ = c.Disperse()
}

// What is held by somebody else is not free.
func TestFree(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	c := lockkeeper.New(shared{e})
	defer c.Close()
	if _, err := c.Lock(t.Context(), string(crowd.Paths[0])); err != nil {
		t.Fatal(err)
	}
	if err := crowd.Free(shared{e}, 10*time.Millisecond); err == nil {
		t.Error("free, although it is held")
	}
}
