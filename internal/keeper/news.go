package keeper

import (
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// news has the notifications of one step, by session. With a log it has the notifications of all
// steps of one commit, and the changes that have watchers.
type news struct {
	items   []item
	of      map[string]int // index in items, by session; empty while items are few
	changes []*change
}

// fewItems is the largest number of items that find searches without the map.
const fewItems = 16

type item struct {
	notify   func([]lockkeeper.Status)
	session  string
	statuses []lockkeeper.Status
}

// newsRoom keeps the memory of delivered news for reuse.
var newsRoom = sync.Pool{New: func() any { return new(news) }}

// gatherNew is gather with new news; nil if there are no notifications.
func (p *publisher) gatherNew(c *table.Command, own string, replied bool, now time.Duration) *news {
	events := p.table.Events()
	if len(events) == 0 || len(events) == 1 && p.watchers.Len() == 0 && replied && about(c, events[0].Ref) {
		return nil
	}
	n := newsRoom.Get().(*news)
	p.gather(n, c, own, replied, now)
	return n
}

// gather adds the notifications of the step of c to n: of the claims that it changed, except the
// claims of the session own and, if replied is set, the claim of c, whose status the caller has from
// the reply. A refusal has no status, and time may have changed the claim that the refused command is
// about: the session is notified of that claim too. The caller holds the mutex.
func (p *publisher) gather(n *news, c *table.Command, own string, replied bool, now time.Duration) {
	events := p.table.Events()
	for i := range events {
		ev := &events[i]
		if p.watchers.Len() > 0 {
			p.notifyWatchers(ev, n, now)
		}
		if ev.Path != "" || ev.Ref.Session == own || replied && about(c, ev.Ref) {
			continue
		}
		if notify := p.sessions.Notify(ev.Ref.Session); notify != nil {
			if st, ok := p.table.Status(ev.Ref); ok {
				n.add(ev.Ref.Session, notify, st)
			}
		}
	}
}

// about reports whether c is a command of ref's session for the claim ref, so that its reply has
// the status.
func about(c *table.Command, ref lockkeeper.Ref) bool {
	if c.Key.Session != ref.Session {
		return false
	}
	return c.Op == table.Claim && c.Want.ID == ref.ID || c.Op == table.End && c.Ending.Kind == lockkeeper.Release &&
		c.Ending.ID == ref.ID
}

// find returns the index of a session's item; -1 if there is none.
func (n *news) find(session string) int {
	if len(n.items) <= fewItems {
		return slices.IndexFunc(n.items, func(it item) bool { return it.session == session })
	}
	if i, found := n.of[session]; found {
		return i
	}
	return -1
}

// closeItem makes later statuses of the session start another item.
func (n *news) closeItem(session string) {
	if i := n.find(session); i >= 0 {
		n.items[i].session = ""
		delete(n.of, session)
	}
}

func (n *news) add(session string, notify func([]lockkeeper.Status), st lockkeeper.Status) {
	if i := n.find(session); i >= 0 {
		n.items[i].statuses = append(n.items[i].statuses, st)
		return
	}
	if len(n.items) < cap(n.items) {
		n.items = n.items[:len(n.items)+1]
	} else {
		n.items = append(n.items, item{})
	}
	it := &n.items[len(n.items)-1]
	it.session, it.notify = session, notify
	it.statuses = append(it.statuses[:0], st)
	n.index()
}

// index adds the last item to n.of, or all items when they are no longer few.
func (n *news) index() {
	last := len(n.items) - 1
	switch {
	case len(n.items) <= fewItems:
		return
	case len(n.items) == fewItems+1:
		if n.of == nil {
			n.of = make(map[string]int)
		}
		for i := range n.items {
			n.of[n.items[i].session] = i
		}
	default:
		n.of[n.items[last].session] = last
	}
}

// deliver notifies the sessions, and returns n's memory to newsRoom. The caller must not hold the
// mutex.
func (n *news) deliver() {
	if n == nil {
		return
	}
	for i := range n.items {
		it := &n.items[i]
		it.notify(it.statuses)
		clear(it.statuses)
		it.notify = nil
	}
	clear(n.changes)
	clear(n.of)
	n.items, n.changes = n.items[:0], n.changes[:0]
	newsRoom.Put(n)
}
