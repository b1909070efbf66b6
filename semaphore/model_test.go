package semaphore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/semaphore"
)

// TestAgainstAMap plays random sessions of several owners on several keys, and
// compares each answer with that of a map from key to a number: granted if and
// only if held + n <= limit, with the ordinal held + n.
func TestAgainstAMap(t *testing.T) {
	seed := testmode.Seed(t)
	for session := range uint64(200) {
		p := newPlayer(t, rand.New(rand.NewPCG(seed, session)))
		for range 400 {
			p.step()
		}
		p.finish()
	}
}

// player plays a session, and keeps what must come of it.
type player struct {
	*testing.T
	*rand.Rand
	m       *semaphore.Manager[string]
	handles []*semaphore.Handle[string]
	owners  []*semaphore.Owner // the first one is nobody: nil
	held    []int              // by key
	slots   []*owned
}

type owned struct {
	slot  *semaphore.Slot
	key   int
	owner int
	over  bool
}

const someKeys = 5

func newPlayer(t *testing.T, r *rand.Rand) *player {
	p := &player{T: t, Rand: r, m: semaphore.New[string](), held: make([]int, someKeys)}
	for k := range someKeys {
		h, err := p.m.Handle(name(k))
		if err != nil {
			t.Fatal(err)
		}
		p.handles = append(p.handles, h)
	}
	p.owners = []*semaphore.Owner{nil, semaphore.NewOwner(t.Context()), semaphore.NewOwner(t.Context())}
	return p
}

func name(key int) string { return fmt.Sprint("key ", key) }

func (p *player) step() {
	p.Helper()
	switch p.IntN(10) {
	case 0, 1, 2, 3, 4:
		p.acquire()
	case 5, 6, 7, 8:
		p.release()
	default:
		if p.IntN(5) == 0 {
			p.end(1 + p.IntN(len(p.owners)-1))
		}
	}
	for k, held := range p.held {
		if got := p.m.Held(name(k)); got != held {
			p.Fatalf("%d of key %d held, want %d", got, k, held)
		}
	}
}

func (p *player) acquire() {
	p.Helper()
	key, owner, n, limit := p.IntN(someKeys), p.IntN(len(p.owners)), 1+p.IntN(3), 3*(1+p.IntN(3))
	var s *semaphore.Slot
	var err error
	switch byHandle, o := p.IntN(2) == 0, p.owners[owner]; {
	case o == nil && byHandle:
		s, err = p.handles[key].TryAcquireN(n, limit)
	case o == nil:
		s, err = p.m.TryAcquireN(name(key), n, limit)
	case byHandle:
		s, err = p.handles[key].TryAcquireFor(o, n, limit)
	default:
		s, err = p.m.TryAcquireFor(o, name(key), n, limit)
	}
	if p.held[key]+n > limit {
		if !errors.Is(err, semaphore.ErrFull) {
			p.Fatalf("%d more of key %d with %d held under %d: %v, want full", n, key, p.held[key], limit, err)
		}
		return
	}
	if err != nil {
		p.Fatalf("%d more of key %d with %d held under %d: %v", n, key, p.held[key], limit, err)
	}
	if p.held[key] += n; s.Ordinal() != p.held[key] || s.N() != n {
		p.Fatalf("ordinal %d of %d slots, want %d of %d", s.Ordinal(), s.N(), p.held[key], n)
	}
	p.slots = append(p.slots, &owned{slot: s, key: key, owner: owner})
}

func (p *player) release() {
	p.Helper()
	if len(p.slots) == 0 {
		return
	}
	o := p.slots[p.IntN(len(p.slots))]
	if err := o.slot.Release(); (err == nil) == o.over || err != nil && !errors.Is(err, semaphore.ErrNotHeld) {
		p.Fatalf("release, over already: %v; got %v", o.over, err)
	}
	p.over(o)
}

// over notes that a slot is no longer held.
func (p *player) over(o *owned) {
	if !o.over {
		o.over = true
		p.held[o.key] -= o.slot.N()
	}
}

// end closes an owner, and begins another one in its place.
func (p *player) end(owner int) {
	p.owners[owner].Close()
	p.owners[owner] = semaphore.NewOwner(p.Context())
	for _, o := range p.slots {
		if o.owner == owner {
			p.over(o)
			o.owner = -1
		}
	}
}

func (p *player) finish() {
	p.Helper()
	for i := 1; i < len(p.owners); i++ {
		p.end(i)
	}
	for _, o := range p.slots {
		if !o.over {
			release(p.T, o.slot)
		}
	}
	nothingHeld(p.T, p.m)
}
