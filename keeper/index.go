package keeper

import (
	"iter"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// An index finds the watchers of a claim, so that those of other claims cost nothing. Each
// watcher is in one part, by the narrowest thing that its query names. The zero index has none.
type index struct {
	all        watchers
	everything watchers
	refs       map[lockkeeper.Ref]watchers
	sessions   map[string]watchers
	paths      pathNode
}

// watchers is a set.
type watchers map[*watcher]struct{}

// A pathNode has the watchers of one path, and of those below it. It exists only while there
// are any.
type pathNode struct {
	at    watchers
	below map[string]*pathNode // by the next segment
}

// add adds a watcher.
func (x *index) add(w *watcher) {
	insert(&x.all, w)
	switch q := &w.query; {
	case q.Ref != (lockkeeper.Ref{}):
		x.refs = addTo(x.refs, q.Ref, w)
	case q.Session != "":
		x.sessions = addTo(x.sessions, q.Session, w)
	case q.Meets != "":
		n := &x.paths
		for segment := range strings.SplitSeq(string(q.Meets), "/") {
			child := n.below[segment]
			if child == nil {
				if n.below == nil {
					n.below = make(map[string]*pathNode)
				}
				child = new(pathNode)
				n.below[segment] = child
			}
			n = child
		}
		insert(&n.at, w)
	default:
		insert(&x.everything, w)
	}
}

// remove removes a watcher, if it is there.
func (x *index) remove(w *watcher) {
	if _, found := x.all[w]; !found {
		return
	}
	delete(x.all, w)
	switch q := &w.query; {
	case q.Ref != (lockkeeper.Ref{}):
		removeFrom(x.refs, q.Ref, w)
	case q.Session != "":
		removeFrom(x.sessions, q.Session, w)
	case q.Meets != "":
		x.paths.remove(string(q.Meets), w)
	default:
		delete(x.everything, w)
	}
}

func insert(set *watchers, w *watcher) {
	if *set == nil {
		*set = make(watchers)
	}
	(*set)[w] = struct{}{}
}

func addTo[K comparable](sets map[K]watchers, key K, w *watcher) map[K]watchers {
	if sets == nil {
		sets = make(map[K]watchers)
	}
	set := sets[key]
	insert(&set, w)
	sets[key] = set
	return sets
}

func removeFrom[K comparable](sets map[K]watchers, key K, w *watcher) {
	if delete(sets[key], w); len(sets[key]) == 0 {
		delete(sets, key)
	}
}

// remove removes a watcher of the path, and the nodes that nobody needs any more.
func (n *pathNode) remove(path string, w *watcher) {
	if path == "" {
		delete(n.at, w)
		return
	}
	segment, rest, _ := strings.Cut(path, "/")
	child := n.below[segment]
	if child.remove(rest, w); len(child.at)+len(child.below) == 0 {
		delete(n.below, segment)
	}
}

// mayWatch reports whether somebody may watch the claim. Its paths are not looked at.
func (x *index) mayWatch(ref lockkeeper.Ref) bool {
	return len(x.everything) > 0 || len(x.paths.below) > 0 || len(x.refs[ref]) > 0 || len(x.sessions[ref.Session]) > 0
}

// selecting yields the watchers that select st, some of them more than once.
func (x *index) selecting(st *lockkeeper.Status) iter.Seq[*watcher] {
	return func(yield func(*watcher) bool) {
		for w := range x.candidates(st) {
			if w.query.Selects(st) && !yield(w) {
				return
			}
		}
	}
}

// candidates yields the watchers that may select st, in no order. Only those of st's claim, of
// its session, of a path that meets one of its own, and of everything are looked at.
func (x *index) candidates(st *lockkeeper.Status) iter.Seq[*watcher] {
	return func(yield func(*watcher) bool) {
		if !x.everything.each(yield) || !x.refs[st.Ref].each(yield) || !x.sessions[st.Ref.Session].each(yield) {
			return
		}
		for i := range st.Grants {
			if len(x.paths.below) == 0 || !x.paths.meeting(st.Grants[i].Path, yield) {
				return
			}
		}
	}
}

// each yields the watchers in no order, until yield returns false, and reports whether it never did.
func (s watchers) each(yield func(*watcher) bool) bool {
	for w := range s {
		if !yield(w) {
			return false
		}
	}
	return true
}

// meeting yields the watchers at path, above it and below it.
func (n *pathNode) meeting(path lockkeeper.Path, yield func(*watcher) bool) bool {
	for segment := range strings.SplitSeq(string(path), "/") {
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
func (n *pathNode) subtree(yield func(*watcher) bool) bool {
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
