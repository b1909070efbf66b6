package table

import "fmt"

// checkEndings verifies that each session finds exactly the ends that its log and its recent tombstones
// have, and that the log counts its records.
func (t *Table) checkEndings() error {
	for id, s := range t.sessions { // order does not matter: any failure is one
		e := &s.endings
		objects, logged, idle, length, size := 0, 0, 0, 0, 0
		for at, r := range e.log.records() {
			length++
			size += len(r.bytes)
			tomb := e.objects[r.id]
			switch {
			case r.is(recordForgotten):
				idle++
				continue
			case !e.logsAt(r.id, at):
				return fmt.Errorf("session %s: end %d is not found in the log", id, r.id)
			case r.is(recordMarks) != (tomb != nil):
				return fmt.Errorf("session %s: end %d is marked: %t, against its object", id, r.id, tomb == nil)
			case tomb != nil:
				objects++
			case e.log.unpack(at, s).forget != r.forget:
				return fmt.Errorf("session %s: end %d is another one in the log", id, r.id)
			}
			logged++
		}
		l := &e.log
		if length != l.length || size != l.size || idle != e.idle {
			return fmt.Errorf("session %s: %d records, %d of them idle, of %d bytes, counted %d, %d and %d", id, l.length,
				e.idle, l.size, length, idle, size)
		}
		if logged != e.index.length || objects != len(e.objects) {
			return fmt.Errorf("session %s: %d packed ends and %d objects, counted %d and %d", id, e.index.length,
				len(e.objects), logged, objects)
		}
		if length > 0 {
			if r := l.front(); r.forget != l.earliest {
				return fmt.Errorf("session %s: the first end is forgotten at %s, not %s", id, r.forget, l.earliest)
			}
		}
	}
	return nil
}

// logsAt reports whether the index has the end of id at a position.
func (e *endings) logsAt(id uint64, at position) bool {
	found, logged := e.index.get(id)
	return logged && found == at
}
