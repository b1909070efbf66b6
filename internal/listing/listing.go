// Package listing evaluates a list of claims for people: which claims explain why a path is not
// free, and how many claims hold and wait, by path and by owner. lk and the HTTP API share it.
// Every list is of one moment, in the order of [lockkeeper.Engine.List].
package listing

import (
	"context"
	"errors"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// Waits reports whether a claim waits: in a queue, or as a shared hold that is to become exclusive.
func Waits(s lockkeeper.Status) bool { return s.State == lockkeeper.Waiting || s.Converting }

// Overlapping returns the claims and freezes with a target at path, above it or below it. Without a
// path it returns all.
func Overlapping(path lockkeeper.Path, all []lockkeeper.Status) []lockkeeper.Status {
	if path == "" {
		return all
	}
	query := lockkeeper.Query{Meets: path}
	return slices.DeleteFunc(slices.Clone(all), func(s lockkeeper.Status) bool { return !query.Selects(&s) })
}

// Explaining returns the claims that explain why path is not free, in the order of all:
//
//   - the claims that overlap path, or, without a path, all waiting claims;
//   - the blockers of these claims, their blockers, and so on;
//   - the waiting claims made inside any of these, because they delay the release of their holder.
//
// The cost is linear in the size of all.
func Explaining(path lockkeeper.Path, all []lockkeeper.Status) []lockkeeper.Status {
	index := make(map[lockkeeper.Ref]int, len(all))
	inside := make(map[lockkeeper.Ref][]int) // nested claims, by the claim that they were made in
	for i, s := range all {
		if s.Ref != (lockkeeper.Ref{}) {
			index[s.Ref] = i
		}
		if s.Inside != (lockkeeper.Ref{}) {
			inside[s.Inside] = append(inside[s.Inside], i)
		}
	}
	delayed := make([]bool, len(all)) // the claim waits, or a claim inside it does
	for i, s := range all {
		for ok := Waits(s); ok && !delayed[i]; i, ok = index[all[i].Inside] {
			delayed[i] = true
		}
	}
	chosen := make([]bool, len(all))
	var pending []int
	choose := func(i int) {
		if !chosen[i] {
			chosen[i] = true
			pending = append(pending, i)
		}
	}
	query := lockkeeper.Query{Meets: path}
	for i := range all {
		if path == "" && Waits(all[i]) || path != "" && query.Selects(&all[i]) {
			choose(i)
		}
	}
	for len(pending) > 0 {
		s := all[pending[0]]
		pending = pending[1:]
		for _, b := range s.Blockers {
			if i, ok := index[b.Ref]; ok {
				choose(i)
			}
		}
		for _, i := range inside[s.Ref] {
			if s.Ref != (lockkeeper.Ref{}) && delayed[i] {
				choose(i)
			}
		}
	}
	var result []lockkeeper.Status
	for i, s := range all {
		if chosen[i] {
			result = append(result, s)
		}
	}
	return result
}

// OwnerName returns the name of a claim's owner; of an owner without a name, the claim's reference.
func OwnerName(label lockkeeper.Label, ref lockkeeper.Ref) string {
	if label.As != "" {
		return label.As
	}
	if ref == (lockkeeper.Ref{}) {
		return "an operator"
	}
	return ref.String()
}

// DeniedAt returns the ErrDenied of an identity that may not learn what is at path, above it or below it: an engine
// answers so to a list of the path in which it has nothing to show. Without a path, and for all other errors, it
// returns nil.
func DeniedAt(ctx context.Context, from Source, path lockkeeper.Path) error {
	if path == "" {
		return nil
	}
	for _, err := range from.List(ctx, lockkeeper.Query{Meets: path, Brief: true, Stale: true}) {
		if err == nil || errors.Is(err, lockkeeper.ErrDenied) {
			return err
		}
	}
	return nil
}
