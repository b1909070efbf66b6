package watching

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// Reported is the latest status of each claim, and of each path of a freeze, that one watcher has
// received. Engines use it if they read everything that a watcher selects again and again, and
// report the differences. It is not safe for concurrent use.
type Reported struct {
	last map[subject]lockkeeper.Status
}

// NewReported is the record of a watcher that has received nothing.
func NewReported() *Reported { return &Reported{last: make(map[subject]lockkeeper.Status)} }

// Live reports whether the watcher has received the subject of st, and not its end.
func (t *Reported) Live(st *lockkeeper.Status) bool {
	old, known := t.last[subjectOf(st)]
	return known && old.State != lockkeeper.Ended
}

// Changes compares all, the present state of everything that the watcher selects, with the statuses
// that it has received, and yields the differences. Subjects that are gone come first, so that the
// watcher sees the end of a hold before the next grant; then new and changed subjects. The passing
// of time is no change.
//
// ended has the subjects that ended since the last call, including subjects that also began since
// then. If a subject ended twice, the later end counts. Changes reports a subject that is neither
// in all nor in ended as ended without a reason.
//
// Changes returns false if yield did. Statuses are lost then, so the caller must not call it again.
func (t *Reported) Changes(all, ended []lockkeeper.Status, yield func(lockkeeper.Status, error) bool) bool {
	here := make(map[subject]bool, len(all))
	for i := range all {
		here[subjectOf(&all[i])] = true
	}
	gone := make(map[subject]lockkeeper.Status, len(ended))
	for i := range ended {
		gone[subjectOf(&ended[i])] = ended[i]
	}
	return t.gone(here, gone, yield) && t.changed(all, yield)
}

// Missing returns the claims that the watcher has received as live and that are neither in all nor
// in ended, sorted.
func (t *Reported) Missing(all, ended []lockkeeper.Status) (refs []lockkeeper.Ref) {
	found := make(map[lockkeeper.Ref]bool, len(all)+len(ended))
	for _, some := range [][]lockkeeper.Status{all, ended} {
		for i := range some {
			found[some[i].Ref] = true
		}
	}
	for s, old := range t.last { // order does not matter: sorted below
		if s.path == "" && old.State != lockkeeper.Ended && !found[s.ref] {
			refs = append(refs, s.ref)
		}
	}
	slices.SortFunc(refs, func(a, b lockkeeper.Ref) int {
		return cmp.Or(strings.Compare(a.Session, b.Session), cmp.Compare(a.ID, b.ID))
	})
	return refs
}

// Latest returns the latest statuses of those of the claims that the watcher has received as live.
// If it is known that a claim ends, but not yet why, the caller adds its latest status to all: then
// Changes reports nothing of it.
func (t *Reported) Latest(refs []lockkeeper.Ref) (all []lockkeeper.Status) {
	for _, ref := range refs {
		if old, known := t.last[subject{ref: ref}]; known && old.State != lockkeeper.Ended {
			all = append(all, old)
		}
	}
	return all
}

// gone yields the ends of subjects that are no longer here, in the order of their changes.
func (t *Reported) gone(here map[subject]bool, gone map[subject]lockkeeper.Status,
	yield func(lockkeeper.Status, error) bool) bool {
	for s, old := range t.last {
		if _, known := gone[s]; !known && !here[s] && old.State != lockkeeper.Ended {
			old.State, old.Reason = lockkeeper.Ended, lockkeeper.NoReason // its reason is no longer known
			gone[s] = old
		}
	}
	byChange := func(a, b subject) int { return cmp.Compare(gone[a].Change, gone[b].Change) }
	for _, s := range slices.SortedFunc(maps.Keys(gone), byChange) {
		if old, known := t.last[s]; here[s] || known && old.State == lockkeeper.Ended && same(old, gone[s]) {
			continue
		}
		delete(t.last, s)
		if !yield(gone[s], nil) {
			return false
		}
	}
	return true
}

// changed yields new and changed subjects.
func (t *Reported) changed(all []lockkeeper.Status, yield func(lockkeeper.Status, error) bool) bool {
	for _, st := range all {
		s := subjectOf(&st)
		if old, known := t.last[s]; known && same(old, st) {
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

// same reports whether a and b differ in nothing but the passing of time.
func same(a, b lockkeeper.Status) bool {
	dropTimes(&a)
	dropTimes(&b)
	return reflect.DeepEqual(a, b)
}

// dropTimes clears the fields that change by the passing of time alone.
func dropTimes(st *lockkeeper.Status) {
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
