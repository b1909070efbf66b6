package sqllock

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// kind is one kind of database that the engine is tested on.
type kind struct {
	name   string
	shared func(testing.TB) *testdb.Server
	own    func(testing.TB, ...testdb.Option) *testdb.Server
	// idle is how long a process that is stopped in a transaction keeps its latches.
	idle time.Duration
}

var kinds = []kind{
	{"Postgres", testdb.SharedPostgres, testdb.Postgres, idleFirst},
	{"MariaDB", testdb.SharedMariaDB, testdb.MariaDB, time.Second},
}

// overKinds runs a test for each kind of database.
func overKinds(t *testing.T, test func(t *testing.T, k kind)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { test(t, k) })
	}
}

// overMostKinds is overKinds with -long. Otherwise it runs a test for Postgres alone: one that
// takes long, and is about what all databases do alike.
func overMostKinds(t *testing.T, test func(t *testing.T, k kind)) {
	if testmode.Long() {
		overKinds(t, test)
		return
	}
	k := kinds[0]
	t.Run(k.name, func(t *testing.T) { test(t, k) })
}

// openEngine opens the locks in a database until the test ends.
func openEngine(t testing.TB, url string) *Engine {
	t.Helper()
	e, err := Open(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// longest bounds whatever a test waits for, as a safety net.
const longest = time.Minute

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	t.Cleanup(cancel)
	return ctx
}

// member is a session of a test, with the notifications that it received.
type member struct {
	*Engine
	t   testing.TB
	key lockkeeper.Key

	mu   sync.Mutex
	told map[uint64][]lockkeeper.Status // by claim
	miss bool                           // it was notified that it may have missed something
	more chan struct{}                  // a token for new notifications
}

// join attaches a session to e that nobody renews.
func join(t testing.TB, e *Engine, id string, ttl time.Duration) *member {
	t.Helper()
	m := &member{Engine: e, t: t, told: make(map[uint64][]lockkeeper.Status), more: make(chan struct{}, 1)}
	lease, err := e.Attach(bounded(t), lockkeeper.Session{ID: id, TTL: ttl}, m.hear)
	if err != nil {
		t.Fatalf("%s attaches: %v", id, err)
	}
	m.key = lease.Key
	return m
}

func (m *member) hear(all []lockkeeper.Status) {
	m.mu.Lock()
	m.miss = m.miss || len(all) == 0
	for _, st := range all {
		m.told[st.Ref.ID] = append(m.told[st.Ref.ID], st)
	}
	m.mu.Unlock()
	wake(m.more)
}

// exclusive wants paths exclusively.
func exclusive(id uint64, wait time.Duration, paths ...string) lockkeeper.Want {
	w := lockkeeper.Want{ID: id, Wait: wait}
	for _, path := range paths {
		w.Targets = append(w.Targets, lockkeeper.Target{Path: lockkeeper.Path(path), Mode: lockkeeper.ModeExclusive})
	}
	return w
}

// claim makes a claim whose answer must have that state.
func (m *member) claim(w lockkeeper.Want, want lockkeeper.State) lockkeeper.Status {
	m.t.Helper()
	st, err := m.Claim(bounded(m.t), m.key, w)
	if err != nil || st.State != want || st.Ref != (lockkeeper.Ref{Session: m.key.Session, ID: w.ID}) {
		m.t.Errorf("%s.%d claims %v: %v %s %s %v, want %v", m.key.Session, w.ID, w.Targets, st.State, st.Ref, st.Reason, err,
			want)
	}
	return st
}

// end ends something, which must succeed.
func (m *member) end(ending lockkeeper.Ending) {
	m.t.Helper()
	if err := m.End(bounded(m.t), m.key, ending); err != nil {
		m.t.Errorf("%s ends %+v: %v", m.key.Session, ending, err)
	}
}

func (m *member) release(id uint64) {
	m.t.Helper()
	m.end(lockkeeper.Ending{Kind: lockkeeper.Release, ID: id})
}

// await waits until the session is notified that a claim is in a state.
func (m *member) await(id uint64, want lockkeeper.State) lockkeeper.Status {
	m.t.Helper()
	ctx := bounded(m.t)
	for {
		m.mu.Lock()
		all, miss := m.told[id], m.miss
		m.miss = false
		i := slices.IndexFunc(all, func(st lockkeeper.Status) bool { return st.State == want })
		m.mu.Unlock()
		if i >= 0 {
			return all[i]
		}
		if miss {
			lease, err := m.Renew(ctx, m.key)
			if err != nil {
				m.t.Fatalf("%s is renewed: %v", m.key.Session, err)
			}
			m.hear(append(lease.Claims, lockkeeper.Status{}))
			continue
		}
		select {
		case <-m.more:
		case <-ctx.Done():
			m.t.Fatalf("%s.%d was never told that it is %v, but %v", m.key.Session, id, want, all)
		}
	}
}

// listed are the claims that a query finds and that live.
func listed(t testing.TB, e *Engine, q lockkeeper.Query) (all []lockkeeper.Status) {
	t.Helper()
	for st, err := range e.List(bounded(t), q) {
		if err != nil {
			t.Fatal(err)
		}
		if st.State != lockkeeper.Ended {
			all = append(all, st)
		}
	}
	return all
}
