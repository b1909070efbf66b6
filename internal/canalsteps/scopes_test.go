package canalsteps

import (
	"fmt"
	"slices"
)

// scopes are the worlds that are explored. Those of five workers, and of four with
// long programs, are large: only -larger asks for them.
func scopes() []scope {
	return slices.Concat(keyScopes(), ownerScopes(), tableScopes(), largeScopes())
}

// keyScopes are about one key, whose limit is another one for each who asks.
func keyScopes() []scope {
	return []scope{
		{name: "A to E, who stay", stay: true, programs: timeline(false)},
		{name: "A to E, who release", programs: timeline(true)},
		{name: "one key, limits 1, 2, 1", programs: [][]call{
			{take(1, "a", 1, 1), give(1), take(2, "a", 1, 2), give(2)},
			{take(3, "a", 1, 2), give(3), give(3), take(4, "a", 1, 1), give(4)},
			{take(5, "a", 1, 1), give(5), give(1)},
		}},
		{name: "several at once", programs: [][]call{
			{take(1, "a", 2, 3), give(1)},
			{take(2, "a", 1, 2), give(2)},
			{take(3, "a", 3, 4), give(3)},
			{take(4, "a", 2, 4), give(4)},
		}},
		{name: "resources come and go, one slot each", views: 1, programs: [][]call{
			{sees(2), sees(1)},
			{takeSeen(1, "a", 1, 1), give(1), takeSeen(2, "a", 1, 1), give(2)},
			{takeSeen(3, "a", 1, 1), give(3)},
			{takeSeen(4, "a", 1, 1), give(4)},
		}},
		{name: "resources come and go, two slots each", views: 2, programs: [][]call{
			{sees(1), sees(0), sees(2)},
			{takeSeen(1, "a", 2, 2), give(1)},
			{takeSeen(2, "a", 1, 2), takeSeen(3, "a", 1, 2), give(2), give(3)},
		}},
	}
}

// ownerScopes are about owners and handles.
func ownerScopes() []scope {
	return []scope{
		{name: "an owner ends while slots are taken and released for it", programs: [][]call{
			{take(1, "a", 1, 2).as(1), give(1)},
			{give(1), closes(1), take(3, "a", 1, 1), give(3)},
			{take(2, "a", 1, 1).as(1), give(2)},
		}},
		{name: "an owner ends by its context and is closed", programs: [][]call{
			{take(1, "a", 1, 2).as(1), give(1), closes(1)},
			{contextEnds(1)},
			{take(2, "a", 1, 1).as(1), give(2), closes(1)},
		}},
		{name: "two owners and two keys", programs: [][]call{
			{take(1, "a", 1, 1).as(1), take(2, "b", 1, 1).as(1), closes(1)},
			{take(3, "b", 1, 1).as(2), take(4, "a", 1, 1).as(2), closes(2)},
			{give(1), give(3)},
		}},
		{name: "an owner has more slots than its list has room for", programs: [][]call{
			{take(1, "a", 1, 3).as(1), take(2, "a", 1, 3).as(1), take(3, "a", 1, 3).as(1), closes(1)},
			{give(1), give(2), give(3)},
			{take(4, "a", 1, 2).as(1), give(4)},
		}},
		{name: "a handle lives while its slots are taken", programs: [][]call{
			{pins(1, "a"), take(1, "a", 1, 1).by(1), heldBy(1, "a"), letsGo(1), give(1)},
			{cleansUp(1)},
			{take(2, "a", 1, 1), give(2)},
			{take(3, "b", 1, 1), give(3)},
		}},
		{name: "two handles of one key", programs: [][]call{
			{pins(1, "a"), take(1, "a", 1, 2).by(1).as(1), letsGo(1), closes(1), cleansUp(1)},
			{pins(2, "a"), take(2, "a", 1, 1).by(2), letsGo(2), give(2), cleansUp(2)},
			{take(3, "a", 1, 1), give(3), give(1)},
		}},
		{name: "two release the same slot, and its owner ends", programs: [][]call{
			{take(1, "a", 1, 1).as(1), give(1), take(2, "a", 1, 1), give(2)},
			{give(1), give(2)},
			{give(1), closes(1)},
		}},
	}
}

// tableScopes are about keys whose entries are in one another's way.
func tableScopes() []scope {
	return []scope{
		{name: "cells move under who looks", smallest: 4, dense: true, programs: [][]call{
			{take(1, "a", 1, 1), give(1)},
			{take(2, "b", 1, 1), give(2)},
			{take(3, "c", 1, 1), give(3), take(4, "c", 1, 1), give(4)},
		}},
		{name: "cells move round the end of the table", smallest: 4, dense: true, hashes: [3]uint8{3, 3, 0},
			programs: [][]call{
				{take(1, "a", 1, 1), give(1), take(2, "a", 1, 1), give(2)},
				{take(3, "b", 1, 1), give(3)},
				{take(4, "c", 1, 1), give(4)},
			}},
		{name: "the table grows and shrinks under who looks", programs: [][]call{
			{take(1, "a", 1, 1), give(1), take(2, "b", 1, 1), give(2)},
			{take(3, "b", 1, 1), give(3), take(4, "a", 1, 1), give(4)},
			{take(5, "a", 1, 2), give(5)},
		}},
		{name: "who asks is told the truth", programs: [][]call{
			{walks(), heldOf("a")},
			{take(1, "a", 2, 2), give(1), take(2, "b", 1, 1), give(2)},
			{take(3, "a", 1, 2), give(3)},
		}},
	}
}

func largeScopes() []scope {
	all := []scope{
		{name: "five with one key", programs: [][]call{
			{take(1, "a", 1, 1), give(1), take(6, "a", 1, 2), give(6)},
			{take(2, "a", 1, 2), give(2), give(2)},
			{take(3, "a", 2, 3), give(3)},
			{take(4, "a", 1, 1), give(4)},
			{take(5, "a", 1, 4), give(5), give(1)},
		}},
		{name: "five with an owner and two keys", programs: [][]call{
			{take(1, "a", 1, 1).as(1), give(1)},
			{take(2, "b", 1, 1).as(1), closes(1)},
			{take(3, "a", 1, 2), give(3), give(1), take(5, "b", 1, 1), give(5)},
			{take(4, "b", 1, 1), give(4)},
			{contextEnds(1)},
		}},
		{name: "four with handles and two keys", programs: [][]call{
			{pins(1, "a"), take(1, "a", 1, 1).by(1), letsGo(1), give(1), cleansUp(1)},
			{pins(2, "a"), take(2, "a", 1, 2).by(2), letsGo(2), give(2), cleansUp(2)},
			{take(3, "b", 1, 1), give(3), take(4, "a", 1, 1), give(4), give(1)},
			{take(5, "a", 1, 1), give(5), take(6, "b", 1, 1), give(6)},
		}},
		{name: "four with three keys", smallest: 4, dense: true, programs: [][]call{
			{take(1, "a", 1, 1), give(1), take(2, "b", 1, 1), give(2)},
			{take(3, "b", 1, 1), give(3), take(4, "c", 1, 1), give(4)},
			{take(5, "c", 1, 1), give(5)},
			{take(6, "a", 1, 1), give(6)},
		}},
	}
	for i := range all {
		all[i].large = true
	}
	return all
}

// crowd is a number of workers, each with any program of a menu.
type crowd struct {
	name  string
	menu  func(worker, workers int) [][]call
	shard scope // how large it is
}

var crowds = []crowd{
	{"one key, an owner, handles", ownersMenu, scope{}},
	{"three keys in one table", keysMenu, scope{smallest: 4, dense: true, hashes: [3]uint8{3, 3, 0}}},
}

// ownersMenu gives each worker its own slots and handle, and all the same owner.
func ownersMenu(worker, workers int) [][]call {
	s, h := uint8(2*worker+1), uint8(worker+1)
	other := uint8(2*((worker+1)%workers) + 1)
	return [][]call{
		{take(s, "a", 1, 1), give(s)},
		{take(s, "a", 1, 2), give(s), give(s)},
		{take(s, "a", 2, 3), give(s)},
		{take(s, "a", 1, 1), give(s), take(s+1, "a", 1, 2), give(s + 1)},
		{take(s, "b", 1, 1), give(s)},
		{take(s, "a", 1, 1).as(1), give(s)},
		{take(s, "a", 1, 2).as(1), take(s+1, "b", 1, 1).as(1), closes(1)},
		{closes(1)},
		{contextEnds(1)},
		{give(other), take(s, "a", 1, 1), give(s)},
		{pins(h, "a"), take(s, "a", 1, 1).by(h), letsGo(h), give(s), cleansUp(h)},
		{heldOf("a"), walks()},
	}
}

func keysMenu(worker, workers int) [][]call {
	s, h := uint8(2*worker+1), uint8(worker+1)
	return [][]call{
		{take(s, "a", 1, 1), give(s)},
		{take(s, "b", 1, 1), give(s)},
		{take(s, "c", 1, 1), give(s)},
		{take(s, "a", 1, 2), take(s+1, "b", 1, 2), give(s), give(s + 1)},
		{take(s, "b", 1, 1), give(s), take(s+1, "c", 1, 1), give(s + 1)},
		{pins(h, "b"), letsGo(h), cleansUp(h)},
		{walks()},
	}
}

// scopes are all choices of that many programs.
func (c crowd) scopes(workers int) (all []scope) {
	programs := len(c.menu(0, 1))
	var choose func(chosen []int)
	choose = func(chosen []int) {
		if len(chosen) == workers {
			all = append(all, c.scope(chosen))
			return
		}
		from := 0
		if len(chosen) > 0 {
			from = chosen[len(chosen)-1]
		}
		for i := from; i < programs; i++ {
			choose(append(slices.Clone(chosen), i))
		}
	}
	choose(nil)
	return all
}

func (c crowd) scope(chosen []int) scope {
	sc := c.shard
	sc.name = fmt.Sprintf("%s, programs %v", c.name, chosen)
	for worker, i := range chosen {
		sc.programs = append(sc.programs, c.menu(worker, len(chosen))[i])
	}
	return sc
}
