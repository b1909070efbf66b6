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
// those that they wait for, directly or not, and those that wait inside one of them
// and so keep it from going on. Without a path they explain all waits. Each comes
// once, in the order of all. The cost is linear in what all names.
func Concerned(path lockkeeper.Path, all []lockkeeper.Status) []lockkeeper.Status {
	index := make(map[lockkeeper.Ref]int, len(all))
	within := make(map[lockkeeper.Ref][]int) // claims by the one that they were made in
	for i, s := range all {
		if s.Ref != (lockkeeper.Ref{}) {
			index[s.Ref] = i
		}
		if s.Inside != (lockkeeper.Ref{}) {
			within[s.Inside] = append(within[s.Inside], i)
		}
	}
	holdsUp := make([]bool, len(all)) // the claim waits, or a claim inside it does
	for i, s := range all {
		for ok := Waits(s); ok && !holdsUp[i]; i, ok = index[all[i].Inside] {
			holdsUp[i] = true
		}
	}
	chosen := make([]bool, len(all))
	var queue []int
	choose := func(i int) {
		if !chosen[i] {
			chosen[i] = true
			queue = append(queue, i)
		}
	}
	query := lockkeeper.Query{Meets: path}
	for i := range all {
		if path == "" && Waits(all[i]) || path != "" && query.Selects(&all[i]) {
			choose(i)
		}
	}
	for len(queue) > 0 {
		s := all[queue[0]]
		queue = queue[1:]
		for _, b := range s.Blockers {
			if i, ok := index[b.Ref]; ok {
				choose(i)
			}
		}
		for _, i := range within[s.Ref] {
			if s.Ref != (lockkeeper.Ref{}) && holdsUp[i] {
				choose(i)
			}
		}
	}
	var some []lockkeeper.Status
	for i, s := range all {
		if chosen[i] {
			some = append(some, s)
		}
	}
	return some
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
