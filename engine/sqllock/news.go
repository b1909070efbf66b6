package sqllock

import "github.com/lockkeeper/lockkeeper"

// news has the statuses that a transaction delivers within this process.
type news struct {
	items []item
	any   bool // something changed at all
}

// item has the statuses for one session.
type item struct {
	session  string
	statuses []lockkeeper.Status
}

func (n *news) add(st lockkeeper.Status) {
	for i := range n.items {
		if n.items[i].session == st.Ref.Session {
			n.items[i].statuses = append(n.items[i].statuses, st)
			return
		}
	}
	n.items = append(n.items, item{st.Ref.Session, []lockkeeper.Status{st}})
}

// deliver notifies the sessions of this process, and wakes its watchers.
func (e *Engine) deliver(n *news) {
	for i := range n.items {
		it := &n.items[i]
		if notify, here := e.local.notify(it.session); here && notify != nil {
			notify(it.statuses)
		}
	}
	if n.any {
		e.poller.Wake()
	}
}
