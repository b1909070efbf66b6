// Package report says of a list of claims what people ask: who is concerned by a
// path and why they wait, and how many hold and wait, where and for whom. It only
// counts and chooses. The list is one moment's, in the order of [lockkeeper.Engine]'s
// List.
package report

import (
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// Waits reports whether a claim waits: in line, or held shared to be exclusive.
func Waits(s lockkeeper.Status) bool { return s.State == lockkeeper.Waiting || s.Converting }

// Waiters are those of the claims that wait.
func Waiters(claims []lockkeeper.Status) []lockkeeper.Status {
	return slices.DeleteFunc(slices.Clone(claims), func(s lockkeeper.Status) bool { return !Waits(s) })
}

// Meeting are the claims and freezes with a target at path, above it or below it;
// all of them without a path.
func Meeting(path lockkeeper.Path, all []lockkeeper.Status) []lockkeeper.Status {
	if path == "" {
		return all
	}
	query := lockkeeper.Query{Meets: path}
	var some []lockkeeper.Status
	for i := range all {
		if query.Selects(&all[i]) {
			some = append(some, all[i])
		}
	}
	return some
}

// Concerned are the claims that explain why path is not free: those that meet it,
// and those that they wait for, directly or not. Without a path they explain why
// anybody waits.
func Concerned(path lockkeeper.Path, all []lockkeeper.Status) []lockkeeper.Status {
	byRef := make(map[lockkeeper.Ref]lockkeeper.Status, len(all))
	for _, s := range all {
		byRef[s.Ref] = s
	}
	queue, seen := slices.Clone(Meeting(path, all)), map[lockkeeper.Ref]bool{}
	if path == "" {
		queue = Waiters(all)
	}
	var chosen []lockkeeper.Status
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if s.Ref != (lockkeeper.Ref{}) && seen[s.Ref] {
			continue
		}
		seen[s.Ref] = true
		chosen = append(chosen, s)
		for _, b := range s.Blockers {
			if next, ok := byRef[b.Ref]; ok && !seen[b.Ref] {
				queue = append(queue, next)
			}
		}
	}
	return chosen
}

// Who is the name of a claim's owner, or else that of the claim.
func Who(label lockkeeper.Label, ref lockkeeper.Ref) string {
	if label.As != "" {
		return label.As
	}
	if ref == (lockkeeper.Ref{}) {
		return "an operator"
	}
	return ref.String()
}
