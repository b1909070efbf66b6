package sqlitelock

import "github.com/lockkeeper/lockkeeper"

// news is what a transaction has to tell within this process.
type news struct {
	items []item
	ended []lockkeeper.Status // claims and freezes that ended, for followers
	any   bool                // something changed at all

	// What changed and has not ended, for followers; or anything may have.
	changed  []lockkeeper.Status
	anything bool
}

// item is what one session is told.
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

// deliver tells the sessions of this process, keeps account of their waiting
// claims, and wakes followers.
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
	if !n.any || e.followed() == 0 {
		return
	}
	e.tellFollowers(n)
}

// noteWait keeps account of the claims of this process that wait, and of those whose hold has an
// end: its holder is asked at its longest, though nobody else may look at the file.
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
