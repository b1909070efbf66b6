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

// name makes a request name the session of its key.
func (b *bindings) name(m *wire.Call) {
	k := &m.Key
	if k.Session == "" {
		return
	}
	slot, bound := b.slotOf[k.Session]
	switch {
	case bound && b.slots[slot].epoch == k.Epoch:
		m.Handle = wire.NewHandle(slot, b.slots[slot].generation)
		return
	case len(k.Session) > lockkeeper.MaxSessionID: // no engine knows it
		m.Named = true
		return
	}
	if !bound {
		slot = b.slot()
	}
	s := &b.slots[slot]
	*s = binding{s.generation + 1, k.Session, k.Epoch}
	b.slotOf[k.Session] = slot
	m.Handle, m.Named = wire.NewHandle(slot, s.generation), true
}

// unname undoes name for a request that is not sent: the session gets a handle again when it needs one.
func (b *bindings) unname(m *wire.Call) { delete(b.slotOf, m.Key.Session) }

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
