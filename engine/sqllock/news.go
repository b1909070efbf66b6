package sqllock

import (
	"reflect"

	"github.com/lockkeeper/lockkeeper"
)

// news is what a transaction has to tell within this process.
type news struct {
	items []item
	ended []lockkeeper.Status // claims and freezes that ended, for followers
	any   bool                // something changed at all
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
	e.mu.Lock()
	defer e.mu.Unlock()
	for f := range e.followers {
		f.tell(n.ended)
	}
}

// noteWait keeps account of the waiting claims of this process.
func (e *Engine) noteWait(st *lockkeeper.Status) {
	waits := st.State == lockkeeper.Waiting || st.Converting
	if waits && e.local[st.Ref.Session] != nil {
		e.waits[st.Ref] = st.Ticket
	} else {
		delete(e.waits, st.Ref)
	}
}

// A subject is a claim, or one path of a freeze.
type subject struct {
	ref  lockkeeper.Ref
	path lockkeeper.Path
}

func subjectOf(st *lockkeeper.Status) subject {
	s := subject{ref: st.Ref}
	if st.State == lockkeeper.Freezing || st.State == lockkeeper.Ended && st.Change == 0 {
		s.path = st.Grants[0].Path // a freeze has no change numbers
	}
	return s
}

// sameNews reports whether b tells a follower nothing that a has not told.
func sameNews(a, b lockkeeper.Status) bool {
	timeless(&a)
	timeless(&b)
	return reflect.DeepEqual(a, b)
}

// timeless takes out what changes by the passing of time alone.
func timeless(st *lockkeeper.Status) {
	st.Age, st.ETA = 0, 0
	if st.Left != lockkeeper.Forever {
		st.Left = 0
	}
	if st.Asked != nil {
		asked := *st.Asked
		if asked.Left != lockkeeper.Forever {
			asked.Left = 0
		}
		st.Asked = &asked
	}
	blockers := make([]lockkeeper.Blocker, len(st.Blockers))
	copy(blockers, st.Blockers)
	for i := range blockers {
		blockers[i].Age, blockers[i].Left = 0, 0
	}
	st.Blockers = blockers
}
