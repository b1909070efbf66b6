package quorumlock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// One policy decides at all nodes: a caller is what its node says, a quota counts over two nodes, and a
// lost leader changes nothing of that.
func TestPolicyOfTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := c.servers[1].engine.SetPolicy(ctx, &access.Policy{
			Rules:  []access.Rule{{Who: []string{"ci"}, May: []access.Verb{access.Lock}, Paths: []string{"free"}}},
			Quotas: []access.Quota{{Who: []string{"ci"}, Claims: 2}},
		})
		if err != nil {
			t.Fatal(err)
		}
		at := func(i int, name string) (*Engine, context.Context) {
			return c.servers[i].running(), access.WithCaller(ctx, access.Caller{Name: name})
		}
		want := func(id uint64, p lockkeeper.Path) lockkeeper.Want {
			return lockkeeper.Want{ID: id, Targets: []lockkeeper.Target{{Path: p, Mode: lockkeeper.ModeExclusive}}}
		}
		keys := make([]lockkeeper.Key, 3)
		for i := range c.servers {
			e, as := at(i, "ci")
			lease, err := e.Attach(as, lockkeeper.Session{ID: fmt.Sprint("ci:", i), TTL: 10 * time.Minute}, nil)
			if err != nil {
				t.Fatal(err)
			}
			keys[i] = lease.Key
			if _, err := e.Claim(as, keys[i], want(1, "secret")); !errors.Is(err, lockkeeper.ErrDenied) {
				t.Errorf("node %d: a path that is not ci's: %v", i+1, err)
			}
			for _, name := range []string{"", "eve"} { // a server that knows nobody, or says that somebody else calls
				e, as := at(i, name)
				_, err := e.Claim(as, keys[i], want(1, "free"))
				if _, attached := e.Attach(as, lockkeeper.Session{ID: "eve:s", TTL: time.Minute}, nil); !errors.Is(err,
					lockkeeper.ErrDenied) || !errors.Is(attached, lockkeeper.ErrDenied) {
					t.Errorf("node %d: caller %q: %v, %v", i+1, name, err, attached)
				}
			}
		}
		claims := func(i int, id uint64, exceeds bool) {
			t.Helper()
			e, as := at(i, "ci")
			_, err := e.Claim(as, keys[i], want(id, lockkeeper.Path(fmt.Sprintf("free/%d/%d", i, id))))
			for errors.Is(err, lockkeeper.ErrUnavailable) && ctx.Err() == nil { // as a client does
				_, err = e.Claim(as, keys[i], want(id, lockkeeper.Path(fmt.Sprintf("free/%d/%d", i, id))))
			}
			if exceeds != errors.Is(err, lockkeeper.Quota) || !exceeds && err != nil {
				t.Fatalf("claim %d at node %d: %v, want the refusal of a quota: %v", id, i+1, err, exceeds)
			}
		}
		claims(0, 1, false)
		claims(1, 1, false)
		claims(2, 1, true)
		claims(1, 1, false) // it is there already
		leader := int(c.servers[0].running().node.Status().Leader) - 1
		c.servers[leader].stop()
		i, other := (leader+1)%3, (leader+2)%3
		claims(i, 2, true)
		claims(other, 2, true)
		e, as := at(other, "ci")
		keep := keys[0]
		if err := e.End(as, keep, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
			t.Fatal(err)
		}
		claims(other, 3, false)
		claims(i, 3, true)
		if _, err := c.servers[i].running().Renew(as, keys[i]); err != nil {
			t.Errorf("a renewal at another node: %v", err)
		}
		if err := c.servers[i].running().SetPolicy(ctx, nil); err != nil {
			t.Fatal(err)
		}
		claims(i, 4, false)
	})
}

func TestPolicyIsCheckedBeforeItIsSet(t *testing.T) {
	c := newCluster(t, 1, 0)
	err := c.servers[0].engine.SetPolicy(t.Context(), &access.Policy{Rules: []access.Rule{{Who: []string{"a b"}}}})
	if !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Error(err)
	}
}
