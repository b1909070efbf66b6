package sqllock

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// cutting is a test in which connections to the database are lost.
type cutting struct {
	*testing.T
	proxy *testdb.Proxy
	cut   *Engine // behind the proxy
	other *Engine // another process, which is not
	n     int     // names sessions and paths
}

// cutTTL is that of sessions that nobody renews meanwhile.
const cutTTL = time.Hour

// ways are those in which a connection is lost. They differ in how far the database has got when
// the client notices the loss. A step of 0 is 11, or 1 in the deep mode: of several hundred
// messages within a request most are alike.
var ways = []struct {
	name string
	step int
	plan func(p *testdb.Proxy, n int)
}{
	{"before", 1, (*testdb.Proxy).CutBefore},
	{"after", 1, (*testdb.Proxy).CutAfter},
	{"within", 0, (*testdb.Proxy).CutWithin},
	{"late", 1, (*testdb.Proxy).HoldBack},
}

// The connection is lost at any message of an operation, COMMIT included: the caller gets one
// answer, and the operation happens once.
func TestConnectionLostAtEveryMessage(t *testing.T) {
	cases := []struct {
		name string
		// one prepares something, arms, does it, and returns what has to be true then.
		one func(c *cutting, arm func()) (check func())
	}{
		{"acquire", cutAcquire}, {"release", cutRelease}, {"renewal", cutRenewal}, {"attach", cutAttach},
		{"takeover", cutTakeover},
		{"leave", cutLeave}, {"wait", cutWait}, {"handing over", cutHandOver}, {"many", cutMany},
	}
	overMostKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		for _, test := range cases {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				p := testdb.NewProxy(t, k.shared(t))
				direct := k.shared(t).Database(t)
				c := &cutting{T: t, proxy: p, other: openEngine(t, direct), cut: openEngine(t, p.URL(databaseName(direct)))}
				for _, way := range ways {
					step := cmp.Or(way.step, testmode.Pick(11, 1))
					c.everywhere(way.name, step, func(n int) { way.plan(p, n) }, test.one)
				}
			})
		}
	})
}

// everywhere goes through all messages, and again if none with a COMMIT was cut: what the engine
// asks in the background counts as a message too, and can take the place of that one.
func (c *cutting) everywhere(way string, step int, plan func(n int), one func(*cutting, func()) func()) {
	c.Helper()
	const mostRounds = 10
	for range mostRounds {
		if c.round(way, step, plan, one) > 0 {
			return
		}
	}
	c.Errorf("nothing was lost %s a COMMIT: that proves little", way)
}

// round does it again and again, until nothing was left to be cut, and returns how many of the
// requests that were cut had a COMMIT.
func (c *cutting) round(way string, step int, plan func(n int), one func(*cutting, func()) func()) (commits int) {
	c.Helper()
	prefixes := 0
	for n := 1; ; n += step {
		c.n++
		check := one(c, func() { plan(n) })
		struck := c.proxy.Struck()
		c.proxy.Deliver()
		c.proxy.Pass()
		check()
		if c.Failed() {
			c.Fatalf("when the connection was lost %s message or request %d: %s", way, n, struck[max(0, len(struck)-300):])
		}
		if struck == "" {
			c.Logf("lost %s one of %d, %d of them in a request with COMMIT", way, prefixes, commits)
			return commits
		}
		prefixes++
		if strings.Contains(struck, "COMMIT") {
			commits++
		}
	}
}

// name makes a name that is new in this test.
func (c *cutting) name(what string) string { return fmt.Sprintf("%s-%d", what, c.n) }

// held says that ref alone has a path.
func (c *cutting) held(path string, st lockkeeper.Status) {
	c.Helper()
	all := listed(c, c.other, lockkeeper.Query{Meets: lockkeeper.Path(path)})
	if len(all) != 1 || all[0].Ref != st.Ref || all[0].State != lockkeeper.Held || all[0].Fence != st.Fence {
		c.Errorf("%s: there is %+v, want it held by %s alone with fence %d", path, all, st.Ref, st.Fence)
	}
}

// free says that a path is to be had at once.
func (c *cutting) free(path string) {
	c.Helper()
	m := join(c, c.other, c.name("free"), cutTTL)
	m.claim(exclusive(1, 0, path), lockkeeper.Held)
	m.end(lockkeeper.Ending{Kind: lockkeeper.Leave})
}

func cutAcquire(c *cutting, arm func()) func() {
	m, path := join(c, c.cut, c.name("s"), cutTTL), c.name("a")+"/b"
	w := exclusive(1, 0, path)
	arm()
	st := m.claim(w, lockkeeper.Held)
	return func() {
		if again := m.claim(w, lockkeeper.Held); again.Fence != st.Fence || st.Fence == 0 {
			c.Errorf("the same claim again has fence %d, first it had %d", again.Fence, st.Fence)
		}
		c.held(path, st)
		m.release(1)
		c.free(path)
	}
}

func cutRelease(c *cutting, arm func()) func() {
	m, path := join(c, c.cut, c.name("s"), cutTTL), c.name("a")+"/b"
	w := exclusive(1, 0, path)
	m.claim(w, lockkeeper.Held)
	arm()
	m.release(1)
	return func() {
		c.free(path)
		if again := m.claim(w, lockkeeper.Ended); again.Reason != lockkeeper.Released {
			c.Errorf("it ended as %s", again.Reason)
		}
	}
}

func cutRenewal(c *cutting, arm func()) func() {
	m, path := join(c, c.cut, c.name("s"), cutTTL), c.name("a")
	st := m.claim(exclusive(1, 0, path), lockkeeper.Held)
	arm()
	lease, err := m.Renew(bounded(c), m.key)
	if err != nil || lease.Key.Epoch != m.key.Epoch || lease.TTL != cutTTL {
		c.Errorf("the renewal: %+v %v", lease, err)
	}
	return func() {
		c.held(path, st)
		next, err := m.Renew(bounded(c), m.key)
		if err != nil || next.Number <= lease.Number {
			c.Errorf("the next renewal: lease %d after %d, %v", next.Number, lease.Number, err)
		}
		m.end(lockkeeper.Ending{Kind: lockkeeper.Leave})
	}
}

func cutAttach(c *cutting, arm func()) func() {
	path := c.name("a")
	arm()
	m := join(c, c.cut, c.name("s"), cutTTL)
	return func() {
		c.held(path, m.claim(exclusive(1, 0, path), lockkeeper.Held))
		m.end(lockkeeper.Ending{Kind: lockkeeper.Leave})
		c.free(path)
	}
}

// cutTakeover: a process that takes a session over keeps the claims that it names, and no others.
func cutTakeover(c *cutting, arm func()) func() {
	m, kept, left := join(c, c.cut, c.name("s"), cutTTL), c.name("kept"), c.name("left")
	st := m.claim(exclusive(1, 0, kept), lockkeeper.Held)
	m.claim(exclusive(2, 0, left), lockkeeper.Held)
	s := lockkeeper.Session{ID: m.key.Session, TTL: cutTTL, Named: []uint64{1}, Epoch: m.key.Epoch}
	arm()
	lease, err := c.cut.Attach(bounded(c), s, m.hear)
	if err != nil || lease.Key.Epoch <= m.key.Epoch {
		c.Errorf("taken over: %+v %v", lease, err)
	}
	m.key = lease.Key
	return func() {
		if _, err := m.Renew(bounded(c), m.key); err != nil {
			c.Errorf("under the new epoch: %v", err)
		}
		c.held(kept, st)
		c.free(left)
		m.end(lockkeeper.Ending{Kind: lockkeeper.Leave})
	}
}

func cutLeave(c *cutting, arm func()) func() {
	m, first, second := join(c, c.cut, c.name("s"), cutTTL), c.name("a"), c.name("b")+"/c"
	m.claim(exclusive(1, 0, first), lockkeeper.Held)
	m.claim(exclusive(2, 0, second), lockkeeper.Held)
	arm()
	m.end(lockkeeper.Ending{Kind: lockkeeper.Leave})
	return func() {
		c.free(first)
		c.free(second)
	}
}

// cutWait: the waiting side loses its connection.
func cutWait(c *cutting, arm func()) func() {
	holder, m, path := join(c, c.other, c.name("h"), cutTTL), join(c, c.cut, c.name("s"), cutTTL), c.name("a")
	holder.claim(exclusive(1, 0, path), lockkeeper.Held)
	w := exclusive(1, lockkeeper.Forever, path)
	arm()
	m.claim(w, lockkeeper.Waiting)
	holder.release(1)
	st := m.await(1, lockkeeper.Held)
	return func() {
		if again := m.claim(w, lockkeeper.Held); again.Fence != st.Fence {
			c.Errorf("the same claim again has fence %d, it was told %d", again.Fence, st.Fence)
		}
		c.held(path, st)
		m.end(lockkeeper.Ending{Kind: lockkeeper.Leave})
		c.free(path)
	}
}

// cutHandOver: the releasing side loses its connection.
func cutHandOver(c *cutting, arm func()) func() {
	holder, m, path := join(c, c.cut, c.name("h"), cutTTL), join(c, c.other, c.name("s"), cutTTL), c.name("a")
	holder.claim(exclusive(1, 0, path), lockkeeper.Held)
	m.claim(exclusive(1, lockkeeper.Forever, path), lockkeeper.Waiting)
	arm()
	holder.release(1)
	st := m.await(1, lockkeeper.Held)
	return func() {
		c.held(path, st)
		m.end(lockkeeper.Ending{Kind: lockkeeper.Leave})
		c.free(path)
	}
}

// cutMany: sessions claim at once, so that their claims share transactions.
func cutMany(c *cutting, arm func()) func() {
	const number = 24
	members := make([]*member, number)
	for i := range members {
		members[i] = join(c, c.cut, fmt.Sprintf("%s.%d", c.name("s"), i), cutTTL)
	}
	tree := c.name("tree")
	answers := make([]lockkeeper.Status, number)
	var running sync.WaitGroup
	arm()
	for i, m := range members {
		running.Go(func() { answers[i] = m.claim(exclusive(1, 0, fmt.Sprintf("%s/%d", tree, i)), lockkeeper.Held) })
	}
	running.Wait()
	return func() {
		all := listed(c, c.other, lockkeeper.Query{Meets: lockkeeper.Path(tree)})
		found := make(map[lockkeeper.Ref]uint64)
		for _, st := range all {
			found[st.Ref] = st.Fence
		}
		for i, st := range answers {
			if st.Fence == 0 || found[st.Ref] != st.Fence {
				c.Errorf("claim %d was answered with fence %d, and is there with %d", i, st.Fence, found[st.Ref])
			}
		}
		if len(all) != number {
			c.Errorf("there are %d claims, want %d", len(all), number)
		}
		for _, m := range members {
			running.Go(func() { m.end(lockkeeper.Ending{Kind: lockkeeper.Leave}) })
		}
		running.Wait()
		c.free(tree)
	}
}
