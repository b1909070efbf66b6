package model

import (
	"slices"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// Shrink drops commands, and then parts of commands, as long as it still fails.
func Shrink(all []table.Command, fails func([]table.Command) bool) []table.Command {
	for before := -1; before != size(all); {
		before = size(all)
		all = dropCommands(all, fails)
		all = dropParts(all, fails)
	}
	return all
}

func dropCommands(all []table.Command, fails func([]table.Command) bool) []table.Command {
	for n := len(all) / 2; n > 0; n /= 2 {
		for from := 0; from+n <= len(all); {
			if shorter := slices.Delete(slices.Clone(all), from, from+n); fails(shorter) {
				all = shorter
			} else {
				from += n
			}
		}
	}
	return all
}

// dropParts makes each command simpler where it can be.
func dropParts(all []table.Command, fails func([]table.Command) bool) []table.Command {
	for i := range all {
		for part := 0; ; part++ {
			simpler, ok := without(all[i], part)
			if !ok {
				break
			}
			try := slices.Clone(all)
			try[i] = simpler
			if size(try) < size(all) && fails(try) {
				all = try
			}
		}
	}
	return all
}

// without is c without one of its parts; false if there are no more.
func without(c table.Command, part int) (table.Command, bool) {
	w := &c.Want
	simplify := []func(){
		func() { w.Priority = 0 },
		func() { w.Wait = lockkeeper.Forever },
		func() { w.Quiet = 0 },
		func() { w.WriterPolicy, w.Quiet = lockkeeper.Hard, 0 },
		func() { w.Steal, w.After, w.AfterTTL = lockkeeper.NoSteal, 0, 0 },
		func() { w.Steal, w.After, w.AfterTTL = min(w.Steal, lockkeeper.Ask), 0, 0 },
		func() { w.Grace = 0 },
		func() { w.MaxHold, w.Grace = 0, 0 },
		func() { w.Expected = 0 },
		func() { w.Inside = lockkeeper.Ref{} },
		func() { w.Label = lockkeeper.Label{} },
		func() { c.Session.Named = nil },
		func() { c.Session.TTL = 0 },
		func() { c.Session.Epoch = 0 },
		func() { c.Ending.Label = lockkeeper.Label{} },
		func() { c.Key.Epoch = 0 },
		func() { c.Key.LowestOpen = 0 },
		func() { c.Key.Acked = 0 },
		func() { c.At = 0 },
	}
	if part < len(simplify) {
		simplify[part]()
		return c, true
	}
	part -= len(simplify)
	if part >= len(w.Targets) || len(w.Targets) < 2 {
		return c, false
	}
	w.Targets = slices.Delete(slices.Clone(w.Targets), part, part+1)
	return c, true
}

// size is how much there is to read in all.
func size(all []table.Command) int {
	n := 0
	for _, c := range all {
		w := &c.Want
		n += 100 + 4*len(w.Targets) + len(c.Session.Named)
		for _, there := range []bool{
			w.Priority != 0, c.Op == table.Claim && w.Wait != lockkeeper.Forever, w.Quiet != 0,
			w.WriterPolicy != lockkeeper.Hard,
			w.Steal != lockkeeper.NoSteal, w.Steal == lockkeeper.Take, w.After != 0, w.AfterTTL != 0,
			w.Grace != 0, w.MaxHold != 0, w.Expected != 0,
			w.Inside != lockkeeper.Ref{}, w.Label != lockkeeper.Label{}, c.Session.TTL != 0,
			c.Ending.Label != lockkeeper.Label{},
			c.Key.Epoch != 0, c.At != 0,
		} {
			if there {
				n++
			}
		}
	}
	return n
}
