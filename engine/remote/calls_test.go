package remote

import (
	"fmt"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// Slots and generations of two bits each, so that the test comes to the end of both: no number is used
// twice, each open one leads to its call or list, and each other one to nothing.
func TestLateReplyToFormerCallOfSlotFindsNothing(t *testing.T) {
	r := testmode.Rand(t)
	for range 200 {
		cs := calls{slotBits: 2, generationBits: 2}
		type entry struct {
			call *call
			list *list
		}
		open, used := make(map[uint64]entry), make(map[uint64]bool)
		for tries := 0; len(used) < 12 || len(open) > 0; tries++ { // three generations of four slots
			e := entry{call: newCall()}
			if r.IntN(3) == 0 {
				e = entry{list: new(list)}
			}
			if number, ok := cs.add(e.call, e.list); ok {
				if number == 0 || used[number] {
					t.Fatalf("number %d is used twice", number)
				}
				open[number], used[number] = e, true
			} else if tries > 10_000 {
				t.Fatalf("no number is left, and %d are open, %d were used", len(open), len(used))
			}
			late := r.Uint64N(1 << 5) // a reply, perhaps late, doubled or to no call at all
			_, isOpen := open[late]
			if cl, l := cs.find(late); (entry{cl, l}) != open[late] {
				t.Fatalf("number %d leads to another call", late)
			}
			if cs.remove(late) != isOpen {
				t.Fatalf("number %d: removed, and open %t", late, isOpen)
			}
			delete(open, late)
			if len(open) != cs.open+cs.lists {
				t.Fatalf("%d calls and %d lists are open, want %d", cs.open, cs.lists, len(open))
			}
		}
	}
}

func TestOldestCallIsTheOneThatWaitsLongest(t *testing.T) {
	cs := calls{slotBits: slotBits, generationBits: generationBits}
	a, _ := cs.add(newCall(), nil)
	b, _ := cs.add(newCall(), nil)
	oldest := cs.oldest()
	cs.remove(a)
	cs.add(newCall(), nil) // in the slot of a, and later than b
	if got := cs.oldest(); got <= oldest {
		t.Errorf("after the oldest call ended, the oldest is %d, was %d", got, oldest)
	}
	after := cs.oldest()
	cs.remove(b)
	if got := cs.oldest(); got <= after {
		t.Error("the call in the reused slot counts as older than one before it")
	}
}

// With more keys than slots, each request still names its session correctly, by the bindings that a
// server has seen.
func TestHandlesAreBoundAgain(t *testing.T) {
	var b bindings
	bound := make(map[uint64]lockkeeper.Key) // by slot, as a server has it
	generations := make(map[int]uint64)
	for i := range 5 * wire.Slots {
		k := lockkeeper.Key{Session: fmt.Sprint("s", i*7%(wire.Slots+50)), Epoch: uint64(1 + i/wire.Slots)}
		for range 2 {
			m := &wire.Call{Key: k}
			b.name(m)
			if m.Named {
				slot, generation := wire.Slot(m.Handle)
				if generation <= generations[slot] {
					t.Fatalf("slot %d is bound in generation %d after %d", slot, generation, generations[slot])
				}
				generations[slot] = generation
				bound[m.Handle] = m.Key
			}
			if bound[m.Handle] != k {
				t.Fatalf("handle %d stands for %v, want %v", m.Handle, bound[m.Handle], k)
			}
			if session, ok := b.session(m.Handle); !ok || session != k.Session {
				t.Fatalf("handle %d names %q", m.Handle, session)
			}
		}
	}
	for handle, k := range bound {
		if session, ok := b.session(handle); ok && session != k.Session {
			t.Errorf("handle %d of %q names %q now", handle, k.Session, session)
		}
	}
	if len(b.slotOf) > wire.Slots {
		t.Errorf("%d sessions have a handle", len(b.slotOf))
	}
}
