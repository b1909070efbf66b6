package semaphore

import (
	"math/rand/v2"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// TestShardAgainstAMap plays random sessions on one shard and compares it with a map.
// The keys' hashes are chosen, so that most of them meet in the table, also at its
// end, and some have the same one.
func TestShardAgainstAMap(t *testing.T) {
	seed := testmode.Seed(t)
	for session := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, session))
		p := newShardPlayer(t, r)
		for range 400 {
			p.step()
			if t.Failed() {
				t.Fatalf("session %d", session)
			}
		}
		p.finish()
	}
}

// shardPlayer plays a session, and keeps what must come of it, by key.
type shardPlayer struct {
	*testing.T
	*rand.Rand
	s       *shard[int]
	hashes  []uint64
	held    []int
	entries []*entry[int] // of those that are held or pinned
	pins    []int
}

func newShardPlayer(t *testing.T, r *rand.Rand) *shardPlayer {
	keys := 4 + r.IntN(60)
	p := &shardPlayer{
		T:       t,
		Rand:    r,
		s:       new(shard[int]),
		hashes:  make([]uint64, keys),
		held:    make([]int, keys),
		entries: make([]*entry[int], keys),
		pins:    make([]int, keys),
	}
	p.s.init([]int{0, 1, 4, 16}[r.IntN(4)])
	near := uint64(1 + r.IntN(keys))
	for k := range p.hashes {
		p.hashes[k] = -near/2 + r.Uint64N(near)
	}
	return p
}

// step does one thing.
func (p *shardPlayer) step() {
	p.Helper()
	key := p.IntN(len(p.hashes))
	before, frees := len(p.s.check(p.T)), true
	switch p.IntN(6) {
	case 0, 1, 2:
		frees = false
		p.acquire(key, 1+p.IntN(3), p.IntN(6))
	case 3:
		frees = false
		p.pins[key]++
		p.entries[key] = p.s.pin(p.hashes[key], key)
	case 4:
		if p.pins[key] > 0 {
			p.pins[key]--
			p.s.unpin(p.entries[key])
		}
	default:
		for range p.IntN(8) { // several, so that shards also become empty
			if p.held[key] > 0 {
				n := 1 + p.IntN(p.held[key])
				p.held[key] -= n
				p.entries[key].free(n)
			}
			key = p.IntN(len(p.hashes))
		}
	}
	after := p.s.check(p.T)
	if frees && before <= int(p.s.keep) && len(after) < before {
		p.Errorf("%d entries left a shard of %d that keeps %d", before-len(after), before, p.s.keep)
	}
	p.compare(after)
}

func (p *shardPlayer) acquire(key, n, limit int) {
	p.Helper()
	e, ordinal, got := p.s.look(p.hashes[key], key), 0, left
	if e != nil {
		ordinal, got = e.take(n, limit)
	} else if n <= limit {
		e, ordinal, got = p.s.enter(p.hashes[key], key, n, limit)
	}
	switch {
	case p.held[key]+n > limit && got != granted:
	case p.held[key]+n <= limit && got == granted:
		p.entries[key] = e
		if p.held[key] += n; ordinal != p.held[key] {
			p.Errorf("key %d: ordinal %d, want %d", key, ordinal, p.held[key])
		}
	default:
		p.Errorf("key %d, %d held, %d more under %d: answer %d", key, p.held[key], n, limit, got)
	}
}

// compare looks for all keys.
func (p *shardPlayer) compare(entries []*entry[int]) {
	p.Helper()
	for _, e := range entries {
		if p.held[e.key]+p.pins[e.key] > 0 && e != p.entries[e.key] {
			p.Errorf("key %d is somebody else's entry", e.key)
		}
		if int(e.count.Load()) != p.held[e.key] || e.pins != p.pins[e.key] {
			p.Errorf("key %d: count %d, want %d; %d pins, want %d", e.key, e.count.Load(), p.held[e.key], e.pins, p.pins[e.key])
		}
	}
	for key := range p.hashes {
		if e := p.s.look(p.hashes[key], key); e == nil && (p.held[key] > 0 || p.pins[key] > 0) {
			p.Errorf("key %d is lost, %d held and %d pins", key, p.held[key], p.pins[key])
		}
	}
}

// finish ends everything: only what may stay is left, and the table is small again.
func (p *shardPlayer) finish() {
	p.Helper()
	for key := range p.hashes {
		for ; p.pins[key] > 0; p.pins[key]-- {
			p.s.unpin(p.entries[key])
		}
		if p.held[key] > 0 {
			p.entries[key].free(p.held[key])
			p.held[key] = 0
		}
	}
	if left := len(p.s.check(p.T)); left > int(p.s.keep) {
		p.Errorf("%d entries left, at most %d may stay", left, p.s.keep)
	}
}
