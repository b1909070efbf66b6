package table

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A freeze forbids new grants in a subtree until it ends (R18).
type freeze struct {
	path lockkeeper.Path
	by   lockkeeper.Ref
	lockkeeper.Label
	since time.Duration
	until time.Duration
	due   timer
}

// freezes has all freezes, sorted by path, so that the descendants of a path are adjacent.
type freezes struct {
	all []*freeze
	by  map[lockkeeper.Ref]int // number of freezes of each claim
}

// search returns the index at which a freeze of that path is, or would be inserted.
func (fs *freezes) search(path lockkeeper.Path) (i int, found bool) {
	return slices.BinarySearchFunc(fs.all, path, func(f *freeze, p lockkeeper.Path) int {
		return strings.Compare(string(f.path), string(p))
	})
}

// on returns the freeze of exactly this path; nil if there is none.
func (fs *freezes) on(path lockkeeper.Path) *freeze {
	if i, found := fs.search(path); found {
		return fs.all[i]
	}
	return nil
}

// add adds f; its path must not be frozen.
func (fs *freezes) add(f *freeze) {
	i, _ := fs.search(f.path)
	fs.all = slices.Insert(fs.all, i, f)
	if fs.by == nil {
		fs.by = make(map[lockkeeper.Ref]int)
	}
	fs.by[f.by]++
}

func (fs *freezes) remove(f *freeze) {
	i, _ := fs.search(f.path)
	fs.all = slices.Delete(fs.all, i, i+1)
	if fs.by[f.by]--; fs.by[f.by] == 0 {
		delete(fs.by, f.by)
	}
}

// forbidding yields the freezes that block c, as an exclusive hold of the
// freeze's path would, some more than once. It visits no other freezes.
func (fs *freezes) forbidding(c *claim) iter.Seq[*freeze] {
	return func(yield func(*freeze) bool) {
		if len(fs.all) == 0 {
			return
		}
		if f := fs.on(lockkeeper.Root); f != nil && !yield(f) {
			return
		}
		for target := range c.requested() {
			for path := range target.Path.Ancestors() {
				if f := fs.on(path); f != nil && !yield(f) {
					return
				}
			}
			if f := fs.on(target.Path); f != nil && !yield(f) {
				return
			}
			if target.Mode == lockkeeper.ModePermits {
				continue // permits cover one path, not its descendants
			}
			below := target.Path + "/"
			for i, _ := fs.search(below); i < len(fs.all) && strings.HasPrefix(string(fs.all[i].path), string(below)); i++ {
				if !yield(fs.all[i]) {
					return
				}
			}
		}
	}
}

// forbidden returns the freeze that forbids c for longest; nil if none does.
func (t *Table) forbidden(c *claim) *freeze {
	var longest *freeze
	for f := range t.freezes.forbidding(c) {
		if t.work++; longest == nil || f.until > longest.until {
			longest = f
		}
	}
	return longest
}

// beginFreeze begins or replaces a freeze.
func (t *Table) beginFreeze(f *freeze) {
	if old := t.freezes.on(f.path); old != nil {
		t.thaw(old, lockkeeper.Superseded)
	}
	t.freezes.add(f)
	f.due.freeze = f
	t.schedule.set(&f.due, f.until)
	t.markFreeze(f)
	t.events = append(t.events, Event{At: t.now, Kind: Froze, Ref: f.by, Path: f.path})
	t.refreeze()
}

// thaw ends a freeze. When the last freeze of a claim ends, it keeps a tombstone for the session.
func (t *Table) thaw(f *freeze, reason lockkeeper.Reason) {
	t.freezes.remove(f)
	t.schedule.set(&f.due, forever)
	t.markFreeze(f)
	if s := t.sessions[f.by.Session]; s != nil && t.freezes.by[f.by] == 0 {
		t.changes++
		tomb := &tombstone{
			id: f.by.ID, session: s, want: &noTerms, thawed: true, at: t.now, change: t.changes, reason: reason,
			label: pack(&f.Label), ended: &plainEnd,
		}
		tomb.setGrants(freezeGrants(f))
		t.retain(s, tomb)
		t.markEnded(tomb)
	}
	t.events = append(t.events, Event{At: t.now, Kind: Thawed, Ref: f.by, Reason: reason, Path: f.path})
	t.refreeze()
}

func freezeGrants(f *freeze) []lockkeeper.Grant {
	return []lockkeeper.Grant{{Target: lockkeeper.Target{Path: f.path, Mode: lockkeeper.ModeExclusive}}}
}

// refreeze updates which waiting claims are frozen. Call it after every change of the freezes.
func (t *Table) refreeze() {
	frozen := slices.Collect(maps.Keys(t.frozen))
	sortClaims(frozen)
	for _, c := range frozen {
		if t.forbidden(c) == nil {
			t.clearFrozen(c)
			t.enqueue(c)
			t.mark(c)
			if c.isThief {
				t.staleThieves = append(t.staleThieves, c)
			}
		} else {
			t.maybeHopeless = append(t.maybeHopeless, c)
		}
	}
	if len(t.freezes.all) > 0 {
		t.freezeWaiters()
	}
}

// freezeWaiters removes claims that a freeze forbids from the queues.
func (t *Table) freezeWaiters() {
	var caught []*claim
	for _, n := range t.nodesWithWaiters() {
		n.extra.all(func(p *entry) bool {
			if p == &p.claim.wanted()[0] && t.forbidden(p.claim) != nil {
				caught = append(caught, p.claim)
			}
			return true
		})
	}
	t.deadlockSuspected = t.deadlockSuspected || t.endMayDeadlock()
	for _, c := range caught {
		t.stopWaiting(c, true)
		t.setFrozen(c)
		t.maybeHopeless = append(t.maybeHopeless, c)
		if c.isThief {
			t.staleThieves = append(t.staleThieves, c)
		}
		t.mark(c)
	}
}

// setFrozen marks c, which has left the queues, as forbidden by a freeze.
func (t *Table) setFrozen(c *claim) {
	c.frozen = true
	t.frozen[c] = struct{}{}
	for p := range c.pending() {
		n := p.node
		n.needExtra().waiting++
		n.extra.needRare().frozen[p.kind].push(p)
		n.extra.rare.disturbed = 0
	}
}

// clearFrozen is the reverse of setFrozen.
func (t *Table) clearFrozen(c *claim) {
	c.frozen = false
	delete(t.frozen, c)
	for p := range c.pending() {
		p.node.extra.waiting--
		p.node.extra.rare.frozen[p.kind].remove(p)
	}
}
