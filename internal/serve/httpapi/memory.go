package httpapi

import (
	"sync"

	"github.com/lockkeeper/lockkeeper"
)

// mostRemembered bounds each of the two halves of a memory.
const mostRemembered = 8192

// A memory has the keys of sessions that this process has served lately. What it
// does not know costs two exchanges more with the engine, and nothing else. It is
// safe for concurrent use.
type memory struct {
	mu         sync.Mutex // guards all below
	young, old map[tenant]remembered
}

// A tenant is a session of an identity.
type tenant struct{ owner, session string }

// remembered is what is known of one session.
type remembered struct {
	key    lockkeeper.Key
	number uint64          // of the latest lease
	change uint64          // of the claim, as that lease told it or the claim was answered
	heard  uint64          // the latest lease of which the client has shown that it knows it (R12)
	want   lockkeeper.Want // with which the claim was made, or amended last; the id is 0 if that is not known
}

func newMemory() *memory { return &memory{young: make(map[tenant]remembered)} }

// recall is what is known of a session.
func (m *memory) recall(owner, session string) (remembered, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.get(tenant{owner, session})
	return r, ok && r.key.Epoch != 0
}

func (m *memory) get(t tenant) (remembered, bool) {
	r, ok := m.young[t]
	if !ok {
		r, ok = m.old[t]
	}
	return r, ok
}

// note changes what is known of a session.
func (m *memory) note(owner, session string, change func(*remembered)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := tenant{owner, session}
	r, _ := m.get(t)
	change(&r)
	if _, there := m.young[t]; !there && len(m.young) == mostRemembered {
		m.young, m.old = make(map[tenant]remembered), m.young // half of it is forgotten at a time
	}
	m.young[t] = r
}

// forget drops a session that was left under an epoch.
func (m *memory) forget(owner, session string, epoch uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := tenant{owner, session}
	if r, ok := m.get(t); ok && r.key.Epoch <= epoch {
		delete(m.young, t)
		delete(m.old, t)
	}
}
