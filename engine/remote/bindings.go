package remote

import (
	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// bindings are the handles that stand for sessions on a connection. The first request under a key
// binds the next slot to it; later requests name the handle alone. When all slots are bound, the
// next session takes the slot that was bound longest ago.
type bindings struct {
	slots  []binding
	next   int            // the slot to bind next
	slotOf map[string]int // by session
}

type binding struct {
	generation uint64
	session    string
	epoch      uint64
}

// name makes a request name the session of a key.
func (b *bindings) name(m *wire.Request, k lockkeeper.Key) {
	slot, bound := b.slotOf[k.Session]
	switch {
	case k.Session == "":
		return
	case bound && b.slots[slot].epoch == k.Epoch:
		m.Handle, m.Key = wire.NewHandle(slot, b.slots[slot].generation), nil
		return
	case len(k.Session) > lockkeeper.MaxSessionID: // no engine knows it
		m.Key = wire.NewKey(k)
		return
	}
	if !bound {
		slot = b.slot()
	}
	s := &b.slots[slot]
	*s = binding{s.generation + 1, k.Session, k.Epoch}
	b.slotOf[k.Session] = slot
	m.Handle, m.Key = wire.NewHandle(slot, s.generation), wire.NewKey(k)
}

// slot returns a slot for a new session. If all slots are bound, it unbinds one.
func (b *bindings) slot() int {
	slot := b.next
	b.next = (b.next + 1) % wire.Slots
	if slot == len(b.slots) {
		b.slots = append(b.slots, binding{})
	} else {
		delete(b.slotOf, b.slots[slot].session)
	}
	if b.slotOf == nil {
		b.slotOf = make(map[string]int)
	}
	return slot
}

// session returns the session of a handle; false if the handle is of a former generation.
func (b *bindings) session(handle uint64) (string, bool) {
	slot, generation := wire.Slot(handle)
	if slot >= len(b.slots) || b.slots[slot].generation != generation {
		return "", false
	}
	return b.slots[slot].session, true
}
