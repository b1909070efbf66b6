// Package watching keeps watchers: calls of List that go on with every change. [Index] finds the
// watchers of a claim. For engines that poll, [Poller] reads for all watchers at once, and [Reported]
// finds the changes that one watcher has not received yet.
package watching

import (
	"iter"
	"maps"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// An Index finds the watchers W of a claim without visiting watchers of unrelated claims. Each
// watcher is in one of the index's parts, chosen by the narrowest thing that its query names. The
// zero Index is empty. An Index is not safe for concurrent use.
type Index[W comparable] struct {
	all        map[W]lockkeeper.Query
	everything set[W]
	refs       map[lockkeeper.Ref]set[W]
	sessions   map[string]set[W]
	paths      pathNode[W]
}

type set[W comparable] map[W]struct{}

// A pathNode has the watchers of one path, and of paths below it. It exists only while it has
// some.
type pathNode[W comparable] struct {
	at    set[W]
	below map[string]*pathNode[W] // by the next segment
}

// Len returns the number of watchers.
func (x *Index[W]) Len() int { return len(x.all) }

// All yields all watchers, in no order.
func (x *Index[W]) All() iter.Seq[W] { return maps.Keys(x.all) }

// Add adds a watcher of the claims that q selects. The index must not have it yet.
func (x *Index[W]) Add(q lockkeeper.Query, w W) {
	if x.all == nil {
		x.all = make(map[W]lockkeeper.Query)
	}
	x.all[w] = q
	switch {
	case q.Ref != (lockkeeper.Ref{}):
		x.refs = addTo(x.refs, q.Ref, w)
	case q.Session != "":
		x.sessions = addTo(x.sessions, q.Session, w)
	case q.Meets != "":
		insert(&x.paths.make(q.Meets).at, w)
	default:
		insert(&x.everything, w)
	}
}

// make returns the node of a path below n, and creates it if n has none.
func (n *pathNode[W]) make(path lockkeeper.Path) *pathNode[W] {
	for segment := range segments(path) {
		child := n.below[segment]
		if child == nil {
			if n.below == nil {
				n.below = make(map[string]*pathNode[W])
			}
			child = new(pathNode[W])
			n.below[segment] = child
		}
		n = child
	}
	return n
}

// segments yields the segments of a path; [lockkeeper.Root] has none.
func segments(path lockkeeper.Path) iter.Seq[string] {
	if path == lockkeeper.Root {
		return func(func(string) bool) {}
	}
	return strings.SplitSeq(string(path), "/")
}

func (n *pathNode[W]) empty() bool { return len(n.at)+len(n.below) == 0 }

// Remove removes a watcher, if the index has it.
func (x *Index[W]) Remove(w W) {
	q, found := x.all[w]
	if !found {
		return
	}
	delete(x.all, w)
	switch {
	case q.Ref != (lockkeeper.Ref{}):
		removeFrom(x.refs, q.Ref, w)
	case q.Session != "":
		removeFrom(x.sessions, q.Session, w)
	case q.Meets != "":
		x.paths.remove(strings.TrimPrefix(string(q.Meets), string(lockkeeper.Root)), w)
	default:
		delete(x.everything, w)
	}
}

func insert[W comparable](to *set[W], w W) {
	if *to == nil {
		*to = make(set[W])
	}
	(*to)[w] = struct{}{}
}

func addTo[K, W comparable](sets map[K]set[W], key K, w W) map[K]set[W] {
	if sets == nil {
		sets = make(map[K]set[W])
	}
	to := sets[key]
	insert(&to, w)
	sets[key] = to
	return sets
}

func removeFrom[K, W comparable](sets map[K]set[W], key K, w W) {
	if delete(sets[key], w); len(sets[key]) == 0 {
		delete(sets, key)
	}
}

// remove removes a watcher of the path, and the nodes that it leaves empty.
func (n *pathNode[W]) remove(path string, w W) {
	if path == "" {
		delete(n.at, w)
		return
	}
	segment, below, _ := strings.Cut(path, "/")
	child := n.below[segment]
	if child.remove(below, w); child.empty() {
		delete(n.below, segment)
	}
}

// MayWatch reports whether the claim may have watchers. It does not consider the claim's paths.
func (x *Index[W]) MayWatch(ref lockkeeper.Ref) bool {
	return len(x.everything) > 0 || !x.paths.empty() || len(x.refs[ref]) > 0 || len(x.sessions[ref.Session]) > 0
}

// Selecting yields the watchers whose queries select st, some more than once. The caller may
// remove watchers during the iteration.
func (x *Index[W]) Selecting(st *lockkeeper.Status) iter.Seq[W] {
	return func(yield func(W) bool) {
		for w := range x.candidates(st) {
			if q, there := x.all[w]; there && q.Selects(st) && !yield(w) {
				return
			}
		}
	}
}

// candidates yields the watchers whose queries may select st, in no order: watchers of the claim,
// of its session, of a path that meets one of its paths, and of everything.
func (x *Index[W]) candidates(st *lockkeeper.Status) iter.Seq[W] {
	return func(yield func(W) bool) {
		if !x.everything.each(yield) || !x.refs[st.Ref].each(yield) || !x.sessions[st.Ref.Session].each(yield) {
			return
		}
		for i := range st.Grants {
			if x.paths.empty() || !x.paths.meeting(st.Grants[i].Path, yield) {
				return
			}
		}
	}
}

// each yields the watchers in no order. It stops when yield returns false, and then returns false.
func (s set[W]) each(yield func(W) bool) bool {
	for w := range s {
		if !yield(w) {
			return false
		}
	}
	return true
}

// meeting yields the watchers at path, above it and below it.
func (n *pathNode[W]) meeting(path lockkeeper.Path, yield func(W) bool) bool {
	for segment := range segments(path) {
		if !n.at.each(yield) {
			return false
		}
		if n = n.below[segment]; n == nil {
			return true
		}
	}
	return n.subtree(yield)
}

// subtree yields the watchers at n and below it.
func (n *pathNode[W]) subtree(yield func(W) bool) bool {
	if !n.at.each(yield) {
		return false
	}
	for _, child := range n.below { // order does not matter
		if !child.subtree(yield) {
			return false
		}
	}
	return true
}
