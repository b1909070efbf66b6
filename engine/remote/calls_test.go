package remote

import (
	"fmt"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

func TestLateReplyToFormerCallOfSlotFindsNothing(t *testing.T) {
	var cs calls
	first, second := newCall(), newCall()
	former, _ := cs.add(first, nil)
	if !cs.remove(former) {
		t.Fatal("the call is not open")
	}
	number, _ := cs.add(second, nil)
	if number == former || number&(1<<callBits-1) != former&(1<<callBits-1) {
		t.Fatalf("numbers %d and %d, want one slot and two generations", former, number)
	}
	if cl, l := cs.find(former); cl != nil || l != nil || cs.remove(former) {
		t.Error("the number of the former call leads to the later one")
	}
	if cl, _ := cs.find(number); cl != second || cs.open != 1 {
		t.Errorf("the later call is lost, %d are open", cs.open)
	}
	for _, strange := range []uint64{0, 1, 1 << 63, number + 1, number + 1<<callBits} {
		if cl, l := cs.find(strange); cl != nil || l != nil {
			t.Errorf("number %d leads to a call", strange)
		}
	}
}

func TestOldestCallIsTheOneThatWaitsLongest(t *testing.T) {
	var cs calls
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
			m := new(wire.Request)
			b.name(m, k)
			if m.Key != nil {
				slot, generation := wire.Slot(m.Handle)
				if generation <= generations[slot] {
					t.Fatalf("slot %d is bound in generation %d after %d", slot, generation, generations[slot])
				}
				generations[slot] = generation
				bound[m.Handle] = m.GetKey().Read()
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
