package table

import (
	"cmp"
	"slices"
	"time"
)

// mostRecent is the number of tombstones that a session has as objects before it packs them. A client
// that states its lowest open id soon makes the table forget them before that.
const mostRecent = 8

// endings are the ended claims that a session remembers, in the order of their ends. Nobody asks for
// most of them again, so the table packs the bytes of their tombstones into a log, and uses their memory
// again. Tombstones with rare parts stay objects; the log has their ids.
//
// Invariant: an end that is to be forgotten later is in recent, or has a record in log.
type endings struct {
	recent  []*tombstone          // not in log yet, perhaps forgotten ones too
	objects map[uint64]*tombstone // those that log marks, by id
	index   idMap[position]       // where log has them, by id
	log     endLog
	idle    int           // records in log that the table forgot before their time
	latest  time.Duration // end of the last claim
}

// find returns the tombstone with that id of s; nil if there is none.
func (e *endings) find(s *session, id uint64) *tombstone {
	for _, tomb := range slices.Backward(e.recent) {
		if tomb.id == id {
			return tomb
		}
	}
	at, logged := e.index.get(id)
	if !logged {
		return nil
	}
	if tomb := e.objects[id]; tomb != nil {
		return tomb
	}
	return e.log.unpack(at, s)
}

// remember adds tomb to the endings of its session. It reports whether tomb is then the last in order.
func (t *Table) remember(s *session, tomb *tombstone) bool {
	e := &s.endings
	e.forgetLogged(tomb.id)
	tomb.remembered = true
	if e.recent = append(e.recent, tomb); len(e.recent) == mostRecent+1 {
		t.unpacked = append(t.unpacked, s)
	}
	inOrder := tomb.at >= e.latest
	e.latest = max(e.latest, tomb.at)
	return inOrder
}

// packEndings packs the endings of sessions that have many as objects. It waits while Changes has to
// report ends, because it reports the latest state of their tombstones. Between steps the memory of
// tombstones can't be used again, because the last step may still need it.
func (t *Table) packEndings(reuse bool) {
	if len(t.dirty.ended) > 0 {
		return
	}
	for i, s := range t.unpacked {
		t.pack(&s.endings, reuse)
		t.unpacked[i] = nil
	}
	t.unpacked = t.unpacked[:0]
}

func (t *Table) pack(e *endings, reuse bool) {
	for i, tomb := range e.recent {
		e.recent[i] = nil
		if tomb.forget > t.now {
			if tomb.isRare() {
				e.mark(tomb)
				continue
			}
			t.packing = e.log.appendPacked(t.packing[:0], tomb)
			e.index.put(tomb.id, e.log.append(t.packing))
		}
		if tomb.remembered = false; reuse && !tomb.kept {
			t.spareTombstone(tomb)
		}
	}
	e.recent = e.recent[:0]
}

// isRare reports whether tomb has parts that its record would not have.
func (tomb *tombstone) isRare() bool {
	return tomb.unackedUntil != 0 || tomb.blockers != nil || tomb.position != 0 || tomb.eta != 0
}

// mark adds a mark of tomb to the log, and tomb to the objects.
func (e *endings) mark(tomb *tombstone) {
	if e.objects == nil {
		e.objects = make(map[uint64]*tombstone)
	}
	e.objects[tomb.id] = tomb
	e.index.put(tomb.id, e.log.append(appendMark(nil, tomb)))
}

// each calls f with the tombstones of s that are to be forgotten after now, in the order of their ends.
func (e *endings) each(s *session, now time.Duration, f func(*tombstone)) {
	for at, r := range e.log.records() {
		switch {
		case r.forget <= now || r.is(recordForgotten):
		case r.is(recordMarks):
			f(e.objects[r.id])
		default:
			f(e.log.unpack(at, s))
		}
	}
	for _, tomb := range e.recent {
		if tomb.forget > now {
			f(tomb)
		}
	}
}

// forgetKnown forgets the ends of which the session knows with an id from a bound, and below another one.
func (e *endings) forgetKnown(from, below uint64, now time.Duration) {
	for _, tomb := range e.recent {
		if tomb.acked && tomb.id < below {
			tomb.forget = min(tomb.forget, now)
		}
	}
	forget := func(id uint64) {
		at, logged := e.index.get(id)
		if !logged {
			return
		}
		r := e.log.record(at)
		known := r.is(recordAcked)
		if tomb := e.objects[id]; tomb != nil {
			known = tomb.acked
		}
		if known {
			e.forgetLogged(id)
		}
	}
	if below-from <= uint64(e.index.length) {
		for id := from; id < below; id++ {
			forget(id)
		}
	} else {
		var lower []uint64
		for id := range e.index.all() {
			if id >= below {
				break
			}
			lower = append(lower, id)
		}
		for _, id := range lower {
			forget(id)
		}
	}
	e.compact()
}

// forget removes the tombstone with that id before its time, if there is one.
func (e *endings) forget(id uint64, now time.Duration) {
	for _, tomb := range e.recent {
		if tomb.id == id {
			tomb.forget = min(tomb.forget, now)
		}
	}
	e.forgetLogged(id)
	e.compact()
}

// forgetLogged is forget for an end that is not among the recent ones.
func (e *endings) forgetLogged(id uint64) {
	if at, logged := e.index.get(id); logged {
		e.log.record(at).content[0] |= recordForgotten
		delete(e.objects, id)
		e.index.remove(id)
		e.idle++
	}
}

// compact copies the log without forgotten records, once they are more than half of it. So forgetting
// one costs constant time on average.
func (e *endings) compact() {
	if e.idle <= e.log.length/2 {
		return
	}
	old := e.log
	e.log, e.idle = endLog{usual: old.usual}, 0
	for _, r := range old.records() {
		if !r.is(recordForgotten) {
			e.index.put(r.id, e.log.append(r.content))
		}
	}
}

// expire removes the tombstones whose time has come from the front of the log.
func (e *endings) expire(now time.Duration) {
	for e.log.length > 0 && e.log.earliest <= now {
		r := e.log.front()
		if r.is(recordForgotten) {
			e.idle--
		} else {
			delete(e.objects, r.id)
			e.index.remove(r.id)
		}
		e.log.drop(r)
	}
}

// sort puts the endings of s in order, whatever order they were added in. It returns their number.
func (e *endings) sort(s *session, now time.Duration) int {
	var all []*tombstone
	e.each(s, now, func(tomb *tombstone) { all = append(all, tomb) })
	slices.SortStableFunc(all, func(a, b *tombstone) int { return cmp.Compare(a.at, b.at) })
	latest := e.latest
	*e = endings{recent: all, latest: latest}
	for _, tomb := range all {
		tomb.remembered = true
	}
	return len(all)
}

// clear forgets all endings, because their session ended.
func (e *endings) clear(now time.Duration) {
	for _, tomb := range e.objects { // order does not matter: all of them
		tomb.forget, tomb.remembered = now, false
	}
	for _, tomb := range e.recent {
		tomb.forget, tomb.remembered = min(tomb.forget, now), false
	}
	*e = endings{}
}
