package sqlitelock

import "github.com/lockkeeper/lockkeeper"

// news has the statuses that a transaction delivers within this process.
type news struct {
	items []item
	ended []lockkeeper.Status // claims and freezes that ended, for watchers
	any   bool                // something changed at all

	// For watchers: claims that changed and have not ended; anything: all may have changed.
	changed  []lockkeeper.Status
	anything bool
}

// item has the statuses for one session.
type item struct {
	session  string
	notify   func([]lockkeeper.Status) // may be nil
	statuses []lockkeeper.Status
}

func (n *news) add(notify func([]lockkeeper.Status), st lockkeeper.Status) {
	for i := range n.items {
		if n.items[i].session == st.Ref.Session {
			n.items[i].statuses = append(n.items[i].statuses, st)
			return
		}
	}
	n.items = append(n.items, item{st.Ref.Session, notify, []lockkeeper.Status{st}})
}

// deliver notifies the sessions of this process, records their waiting claims, and wakes watchers.
func (e *Engine) deliver(n *news) {
	for i := range n.items {
		it := &n.items[i]
		for j := range it.statuses {
			e.noteWait(&it.statuses[j])
		}
		if it.notify != nil {
			it.notify(it.statuses)
		}
	}
	if !n.any || e.watched() == 0 {
		return
	}
	e.notifyWatchers(n)
}

// noteWait records the waiting claims of this process, and its holds that have an end: this process
// must ask or end them in time, even if no other process reads the file.
func (e *Engine) noteWait(st *lockkeeper.Status) {
	here := e.local.Get(st.Ref.Session) != nil
	if here && (st.State == lockkeeper.Waiting || st.Converting) {
		e.waits[st.Ref] = st.Ticket
	} else {
		delete(e.waits, st.Ref)
	}
	if here && st.State == lockkeeper.Held && st.Left != lockkeeper.Forever {
		e.bounds[st.Ref] = true
	} else {
		delete(e.bounds, st.Ref)
	}
}
