package history

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// judgeFences checks that no fence occurs twice, and that fences rise where the order is certain.
// With byPath it compares only grants whose paths meet.
func judgeFences(spans []*span, byPath bool) (wrong []string) {
	seen := make(map[uint64][]*span)
	var grants []*span // one for each fence of a claim
	for _, s := range spans {
		if s.fence == 0 {
			wrong = append(wrong, fmt.Sprintf("fences: %s has none", s))
			continue
		}
		repeated := false
		for _, old := range seen[s.fence] {
			if old.of == s.of {
				repeated = true
			} else if !byPath || old.meets(s) {
				wrong = append(wrong, fmt.Sprintf("fences: %d was given twice: %s and %s", s.fence, old, s))
			}
		}
		if !repeated {
			seen[s.fence] = append(seen[s.fence], s)
			grants = append(grants, s)
		}
	}
	wrong = append(wrong, judgeFencesByCall(grants, byPath)...)
	return append(wrong, judgeFencesByPath(spans)...)
}

// meets reports whether a path of s is equal to a path of other, above it or below it.
func (s *span) meets(other *span) bool {
	return slices.ContainsFunc(s.targets, func(a lockkeeper.Target) bool {
		return slices.ContainsFunc(other.targets, func(b lockkeeper.Target) bool {
			return a.Path.Covers(b.Path) || b.Path.Covers(a.Path)
		})
	})
}

// judgeFencesByCall checks that a grant answered before another was requested has the lower fence.
func judgeFencesByCall(grants []*span, byPath bool) (wrong []string) {
	byCall := slices.SortedFunc(slices.Values(grants), func(a, b *span) int { return cmp.Compare(a.call, b.call) })
	highest := newHighest(byPath)
	next := 0 // index into grants, which are in the order of their answers
	for _, s := range byCall {
		for next < len(grants) && grants[next].from < s.call {
			highest.add(grants[next])
			next++
		}
		if h := highest.of(s); h != nil && s.fence < h.fence {
			wrong = append(wrong, fmt.Sprintf("fences: %s was asked for after %s", s, h))
		}
	}
	return wrong
}

// highest keeps the grant with the highest fence: of all paths, or of each path.
type highest struct {
	byPath bool
	at     map[lockkeeper.Path]*span // of the targets at the path; of all targets at Root unless byPath
	below  map[lockkeeper.Path]*span // of the targets below the path
}

func newHighest(byPath bool) *highest {
	return &highest{byPath, make(map[lockkeeper.Path]*span), make(map[lockkeeper.Path]*span)}
}

func (h *highest) add(s *span) {
	if !h.byPath {
		raise(h.at, lockkeeper.Root, s)
		return
	}
	for _, t := range s.targets {
		raise(h.at, t.Path, s)
		for p := range t.Path.Ancestors() {
			raise(h.below, p, s)
		}
	}
}

func raise(marks map[lockkeeper.Path]*span, p lockkeeper.Path, s *span) {
	if old := marks[p]; old == nil || old.fence < s.fence {
		marks[p] = s
	}
}

// of returns the grant with the highest fence with which s can be compared; nil if there is none.
func (h *highest) of(s *span) *span {
	if !h.byPath {
		return h.at[lockkeeper.Root]
	}
	var worst *span
	consider := func(old *span) {
		if old != nil && (worst == nil || worst.fence < old.fence) {
			worst = old
		}
	}
	for _, t := range s.targets {
		consider(h.at[t.Path])
		consider(h.below[t.Path])
		for p := range t.Path.Ancestors() {
			consider(h.at[p])
		}
	}
	return worst
}
