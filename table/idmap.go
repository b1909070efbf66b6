package table

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
)

// An idMap maps ids to values. Ids of a session mostly rise by one, so it has a page for 64 ids that
// follow each other:
//
//	page 3      ids 192 to 255
//	has         bit i is set if id 192+i is there
//	values      of those ids, in their order, without gaps
//
// A full page takes hardly more memory than its values. Go's map takes two to three times as much.
type idMap[V any] struct {
	length int
	recent *idPage[V]            // the last one that was needed
	pages  map[uint64]*idPage[V] // all pages, by number; nil until there were two
	empty  *idPage[V]            // a page without values, perhaps with some again. No other page is empty.
}

type idPage[V any] struct {
	number uint64 // its ids have this number as their upper bits
	has    uint64
	values []V
}

// idsOfPage is the number of ids of one page.
const idsOfPage = 64

// rank returns the index that the value of id has, or would have.
func (p *idPage[V]) rank(id uint64) (i int, there bool) {
	bit := uint64(1) << (id % idsOfPage)
	return bits.OnesCount64(p.has & (bit - 1)), p.has&bit != 0
}

// page returns the page of id; nil if there is none.
func (m *idMap[V]) page(id uint64) *idPage[V] {
	p := m.recent
	if p == nil || p.number != id/idsOfPage {
		if p = m.pages[id/idsOfPage]; p != nil {
			m.recent = p
		}
	}
	return p
}

// get returns the value of id; false if there is none.
func (m *idMap[V]) get(id uint64) (v V, there bool) {
	if p := m.page(id); p != nil {
		if i, there := p.rank(id); there {
			return p.values[i], true
		}
	}
	return v, false
}

// put sets the value of id.
func (m *idMap[V]) put(id uint64, v V) {
	p := m.page(id)
	if p == nil {
		p = m.addPage(id / idsOfPage)
	}
	i, there := p.rank(id)
	if there {
		p.values[i] = v
		return
	}
	p.has |= 1 << (id % idsOfPage)
	p.values = append(p.values, v)
	if last := len(p.values) - 1; i < last {
		copy(p.values[i+1:], p.values[i:last])
		p.values[i] = v
	}
	m.length++
}

// addPage adds a page with that number. It reuses the empty one if there is one.
func (m *idMap[V]) addPage(number uint64) *idPage[V] {
	p := m.empty
	if m.empty = nil; p == nil || p.has != 0 {
		p = new(idPage[V])
		if m.pages == nil && m.recent != nil {
			m.pages = map[uint64]*idPage[V]{m.recent.number: m.recent}
		}
	} else {
		delete(m.pages, p.number)
	}
	p.number, m.recent = number, p
	if m.pages != nil {
		m.pages[number] = p
	}
	return p
}

// remove removes id and its value, if it is there.
func (m *idMap[V]) remove(id uint64) {
	p := m.page(id)
	if p == nil {
		return
	}
	i, there := p.rank(id)
	if !there {
		return
	}
	m.length--
	p.has &^= 1 << (id % idsOfPage)
	var none V
	n := len(p.values) - 1
	copy(p.values[i:], p.values[i+1:])
	p.values[n], p.values = none, p.values[:n]
	switch {
	case n == 0:
		if e := m.empty; e != nil && e != p && e.has == 0 {
			delete(m.pages, e.number)
		}
		m.empty = p
	case n <= cap(p.values)/4 && cap(p.values) > idsOfPage/4:
		p.values = append(make([]V, 0, cap(p.values)/2), p.values...)
	}
}

// all yields all ids with their values, in the order of the ids. The map must not change meanwhile.
func (m *idMap[V]) all() iter.Seq2[uint64, V] {
	return func(yield func(uint64, V) bool) {
		if m.pages == nil {
			if m.recent != nil {
				m.recent.each(yield)
			}
			return
		}
		pages := make([]*idPage[V], 0, len(m.pages))
		for _, p := range m.pages { // order does not matter: sorted below
			pages = append(pages, p)
		}
		slices.SortFunc(pages, func(a, b *idPage[V]) int { return cmp.Compare(a.number, b.number) })
		for _, p := range pages {
			if !p.each(yield) {
				return
			}
		}
	}
}

// each yields the ids of p with their values. It reports whether all were asked for.
func (p *idPage[V]) each(yield func(uint64, V) bool) bool {
	rest := p.has
	for _, v := range p.values {
		if !yield(p.number*idsOfPage+uint64(bits.TrailingZeros64(rest)), v) {
			return false
		}
		rest &= rest - 1
	}
	return true
}
