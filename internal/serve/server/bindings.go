package server

import (
	"fmt"
	"sync"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// bindings are the handles that a client has bound to sessions on one connection.
//
// The client chooses the handles and the server bounds them: a slot is below wire.Slots, a session's
// id has at most lockkeeper.MaxSessionID bytes, and the generation of a slot only rises. A handle
// gives no rights: the engine checks the key that it stands for at each call.
type bindings struct {
	mu       sync.Mutex // the reader changes them; it alone may read slots without mu
	slots    []binding
	handleOf map[string]uint64 // by session, for hints
}

type binding struct {
	generation uint64 // 0: the slot was never bound
	key        lockkeeper.Key
}

// resolve returns the key under which a request acts, and binds its handle first if the request says
// so. Only the reader calls it, in the order of the requests.
func (b *bindings) resolve(m *wire.Call) (lockkeeper.Key, error) {
	if m.Handle == 0 {
		return m.Key, nil
	}
	key, err := b.bound(m)
	key.LowestOpen, key.Acked = m.Key.LowestOpen, m.Key.Acked
	return key, err
}

// bound returns the key of the handle of a request. If the request names its session, it binds the
// handle to that first.
func (b *bindings) bound(m *wire.Call) (lockkeeper.Key, error) {
	slot, generation := wire.Slot(m.Handle)
	if m.Named {
		return b.bind(slot, generation, lockkeeper.Key{Session: m.Key.Session, Epoch: m.Key.Epoch})
	}
	if slot >= len(b.slots) || generation == 0 || b.slots[slot].generation != generation {
		return lockkeeper.Key{}, fmt.Errorf("%w: it names slot %d in generation %d, which is not bound", errProtocol,
			slot, generation)
	}
	return b.slots[slot].key, nil
}

// bind binds a handle to a key. It refuses a generation that does not rise.
func (b *bindings) bind(slot int, generation uint64, key lockkeeper.Key) (lockkeeper.Key, error) {
	if len(key.Session) > lockkeeper.MaxSessionID {
		return key, fmt.Errorf("%w: it binds a session id of %d bytes, of at most %d", errProtocol, len(key.Session),
			lockkeeper.MaxSessionID)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.slots) <= slot {
		b.slots = append(b.slots, binding{})
	}
	former := b.slots[slot]
	if (binding{generation, key}) == former && generation > 0 {
		return key, nil // bound again as it is
	}
	if generation <= former.generation {
		return key, fmt.Errorf("%w: it binds slot %d in generation %d after %d", errProtocol, slot, generation,
			former.generation)
	}
	if b.handleOf == nil {
		b.handleOf = make(map[string]uint64)
	}
	if b.handleOf[former.key.Session] == wire.NewHandle(slot, former.generation) {
		delete(b.handleOf, former.key.Session)
	}
	b.slots[slot] = binding{generation, key}
	b.handleOf[key.Session] = wire.NewHandle(slot, generation)
	return key, nil
}

// of returns the handle of a session; 0 if it has none.
func (b *bindings) of(session string) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.handleOf[session]
}
