package canalsteps

import "hash/maphash"

// pool gives each value that it is asked for a number, the same one for the same
// value, counted from 0 in the order in which they come. It compares values
// themselves, so no two of them are ever taken for one.
type pool[T comparable] struct {
	seed   maphash.Seed
	values []T
	table  []uint32 // numbers plus 1, by hash; a power of two, at most half in use
}

func newPool[T comparable]() *pool[T] {
	return &pool[T]{seed: maphash.MakeSeed(), table: make([]uint32, 1024)}
}

// number returns the number of a value, and whether it came just now.
func (p *pool[T]) number(v *T) (n uint32, fresh bool) {
	if len(p.values) >= len(p.table)/2 {
		p.grow()
	}
	mask := uint64(len(p.table) - 1)
	i := maphash.Comparable(p.seed, *v) & mask
	for ; p.table[i] != 0; i = (i + 1) & mask {
		if n := p.table[i] - 1; p.values[n] == *v {
			return n, false
		}
	}
	p.values = append(p.values, *v)
	p.table[i] = uint32(len(p.values))
	return uint32(len(p.values) - 1), true
}

func (p *pool[T]) grow() {
	p.table = make([]uint32, 2*len(p.table))
	mask := uint64(len(p.table) - 1)
	for n := range p.values {
		i := maphash.Comparable(p.seed, p.values[n]) & mask
		for p.table[i] != 0 {
			i = (i + 1) & mask
		}
		p.table[i] = uint32(n + 1)
	}
}
