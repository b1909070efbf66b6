package semaphore

import (
	"math/rand/v2"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// TestShardAgainstArrays compares a shard with plain arrays in random sessions. The test chooses the
// hashes, so that most keys collide, also across the end of the table, and some have equal hashes.
func TestShardAgainstArrays(t *testing.T) {
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

// shardPlayer plays a session and keeps the expected state of each key.
type shardPlayer struct {
	*testing.T
	*rand.Rand
	s       *shard[int]
	hashes  []uint64
	held    []int
	entries []*entry[int] // of the keys that are held or pinned
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

// step does one operation.
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
	if frees && before <= int(p.s.maxIdle) && len(after) < before {
		p.Errorf("%d entries left a shard of %d entries that keeps %d", before-len(after), before, p.s.maxIdle)
	}
	p.compare(after)
}

func (p *shardPlayer) acquire(key, n, limit int) {
	p.Helper()
	e, ordinal, result := p.s.lookup(p.hashes[key], key), 0, stale
	if e != nil {
		ordinal, result = e.take(n, limit)
	} else if n <= limit {
		e, ordinal, result = p.s.takeSlow(p.hashes[key], key, n, limit)
	}
	switch {
	case p.held[key]+n > limit && result != granted:
	case p.held[key]+n <= limit && result == granted:
		p.entries[key] = e
		if p.held[key] += n; ordinal != p.held[key] {
			p.Errorf("key %d: ordinal %d, want %d", key, ordinal, p.held[key])
		}
	default:
		p.Errorf("key %d, %d held, %d more with limit %d: outcome %d", key, p.held[key], n, limit, result)
	}
}

// compare looks up all keys.
func (p *shardPlayer) compare(entries []*entry[int]) {
	p.Helper()
	for _, e := range entries {
		if p.held[e.key]+p.pins[e.key] > 0 && e != p.entries[e.key] {
			p.Errorf("key %d has another entry", e.key)
		}
		if int(e.count.Load()) != p.held[e.key] || e.pins != p.pins[e.key] {
			p.Errorf("key %d: count %d, want %d; %d pins, want %d", e.key, e.count.Load(), p.held[e.key], e.pins, p.pins[e.key])
		}
	}
	for key := range p.hashes {
		if e := p.s.lookup(p.hashes[key], key); e == nil && (p.held[key] > 0 || p.pins[key] > 0) {
			p.Errorf("key %d is lost, %d held and %d pins", key, p.held[key], p.pins[key])
		}
	}
}

// finish frees everything: the shard then has at most maxIdle entries and few cells.
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
	if left := len(p.s.check(p.T)); left > int(p.s.maxIdle) {
		p.Errorf("%d entries remain, at most %d may", left, p.s.maxIdle)
	}
}
