package limits

import "iter"

// claimCounts are the counts of a session's claims, by id. A session mostly has one claim, and always one
// over HTTP, which needs no map. The zero value is empty.
type claimCounts struct {
	id    uint64
	one   counted
	isOne bool
	more  map[uint64]counted // all other claims; nil until there was a second one
}

func (cs *claimCounts) get(id uint64) (c counted, ok bool) {
	if cs.isOne && cs.id == id {
		return cs.one, true
	}
	c, ok = cs.more[id]
	return c, ok
}

// set stores the count of a claim.
func (cs *claimCounts) set(id uint64, c counted) {
	switch _, there := cs.more[id]; {
	case !there && (!cs.isOne || cs.id == id):
		cs.id, cs.one, cs.isOne = id, c, true
	default:
		if cs.more == nil {
			cs.more = make(map[uint64]counted)
		}
		cs.more[id] = c
	}
}

func (cs *claimCounts) delete(id uint64) {
	if cs.isOne && cs.id == id {
		cs.one, cs.isOne = counted{}, false
		return
	}
	delete(cs.more, id)
}

func (cs *claimCounts) len() int {
	if cs.isOne {
		return 1 + len(cs.more)
	}
	return len(cs.more)
}

// all yields the counts, in any order. The loop may set and delete the claim that it was given.
func (cs *claimCounts) all() iter.Seq2[uint64, counted] {
	return func(yield func(uint64, counted) bool) {
		if cs.isOne && !yield(cs.id, cs.one) {
			return
		}
		for id, c := range cs.more { // order does not matter: any
			if !yield(id, c) {
				return
			}
		}
	}
}
