// Package following finds what a follower of a List has not been told yet, for
// engines that look again and again at all that it follows.
package following

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// Told is what one follower was told last of each claim, and of each path of a
// freeze. It is not safe for concurrent use.
type Told struct {
	last map[subject]lockkeeper.Status
}

// New is a follower that was told nothing.
func New() *Told { return &Told{last: make(map[subject]lockkeeper.Status)} }

// Knows reports whether the follower was told of what st is about, and not of its end.
func (t *Told) Knows(st *lockkeeper.Status) bool {
	old, known := t.last[subjectOf(st)]
	return known && old.State != lockkeeper.Ended
}

// Tell yields how all, which is everything that the follower follows as it is now,
// differs from what it was told before. First comes what is there no longer, so that
// it hears of an end before it hears who got the lock next; then what is new or
// has changed. What differs by the passing of time alone is not told.
//
// Ended is how claims and freezes that it follows ended since the last call, those
// included that came and went unseen; of one that ended twice the later counts. What
// is gone and not among them is told as ended without a reason.
//
// It reports whether yield wants more. If not, no other call may follow, since
// what was not yielded is lost.
func (t *Told) Tell(all, ended []lockkeeper.Status, yield func(lockkeeper.Status, error) bool) bool {
	here := make(map[subject]bool, len(all))
	for i := range all {
		here[subjectOf(&all[i])] = true
	}
	gone := make(map[subject]lockkeeper.Status, len(ended))
	for i := range ended {
		gone[subjectOf(&ended[i])] = ended[i]
	}
	return t.tellGone(here, gone, yield) && t.tellPresent(all, yield)
}

// tellGone yields what is here no longer, in the order of the changes.
func (t *Told) tellGone(here map[subject]bool, gone map[subject]lockkeeper.Status,
	yield func(lockkeeper.Status, error) bool) bool {
	for s, old := range t.last {
		if _, known := gone[s]; !known && !here[s] && old.State != lockkeeper.Ended {
			old.State, old.Reason = lockkeeper.Ended, lockkeeper.NoReason // how is not known any more
			gone[s] = old
		}
	}
	byChange := func(a, b subject) int { return cmp.Compare(gone[a].Change, gone[b].Change) }
	for _, s := range slices.SortedFunc(maps.Keys(gone), byChange) {
		if old, known := t.last[s]; here[s] || known && old.State == lockkeeper.Ended && sameNews(old, gone[s]) {
			continue
		}
		delete(t.last, s)
		if !yield(gone[s], nil) {
			return false
		}
	}
	return true
}

// tellPresent yields what is new, or is not as it was told.
func (t *Told) tellPresent(all []lockkeeper.Status, yield func(lockkeeper.Status, error) bool) bool {
	for _, st := range all {
		s := subjectOf(&st)
		if old, known := t.last[s]; known && sameNews(old, st) {
			continue
		}
		t.last[s] = st
		if !yield(st, nil) {
			return false
		}
	}
	return true
}

// subject is a claim, or one path of a freeze.
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
