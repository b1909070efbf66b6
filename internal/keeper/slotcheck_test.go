package keeper

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// checkSlots checks the invariant and the counts of k.slots.
func checkSlots(t *testing.T, k *Keeper) {
	t.Helper()
	if err := k.table.Check(); err != nil {
		t.Errorf("the table: %v", err)
	}
	live, held := 0, 0
	for path, n := range k.slots.nodes {
		below := 0
		for other, m := range k.slots.nodes {
			if other != path && path.Covers(other) && m.holder != nil {
				below++
			}
		}
		if n.below != below {
			t.Errorf("%s counts %d held paths below it: there are %d", path, n.below, below)
		}
		if n.holder == nil {
			if n.head != nil || n.tail != nil {
				t.Errorf("%s has no holder, but claims wait", path)
			}
			continue
		}
		held++
		live++
		if n.meets() || !k.table.Unused(path) {
			t.Errorf("%s is held in a slot, and something else meets it", path)
		}
		for s := n.head; s != nil; s = s.Wait.Next {
			live++
			if s.State() != lockkeeper.SlotWaiting {
				t.Errorf("%s: slot %d is in line in state %d", path, s.ID, s.State())
			}
		}
	}
	checkSessions(t, k)
	if n := k.slots.last; n != nil && k.slots.nodes[n.Path] != n {
		t.Errorf("the last node of %s is not the one in the map", n.Path)
	}
	if k.slots.live != live || k.slots.held != held {
		t.Errorf("%d claims in slots and %d held are counted: there are %d and %d", k.slots.live, k.slots.held, live, held)
	}
	if k.watchers.Len() > 0 && live > 0 {
		t.Error("a claim is in a slot while somebody watches")
	}
}

// checkSessions checks that the sessions know their slots.
func checkSessions(t *testing.T, k *Keeper) {
	t.Helper()
	known := 0
	for id, ss := range k.slots.sessions {
		known += len(ss.all)
		for i, s := range ss.all {
			n := k.slots.nodes[s.Path()]
			if s.Index != i || sessionOf(s) != ss || n != nodeOf(s) {
				t.Errorf("slot %d of %s is number %d, not %d, or of another session or node", s.ID, id, s.Index, i)
			}
		}
	}
	if known != k.slots.live {
		t.Errorf("the sessions know %d slots: there are %d", known, k.slots.live)
	}
}

// TestHoldsThatNobodyWaitsForCountSometimes counts few of many holds of a path, and comes to the same
// estimate (R17).
func TestHoldsThatNobodyWaitsForCountSometimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSlotPair(t, 1)
		k := p.keepers[0]
		defer k.Close()
		defer p.keepers[1].Close()
		hold := func(d time.Duration, times int) {
			for range times {
				p.ids++
				s := &lockkeeper.Slot{ID: p.ids, Owner: p.owners["s1"]}
				if state := p.slotsOf["s1"].Take(s, "a", lockkeeper.Forever); state != lockkeeper.SlotHeld {
					t.Fatalf("taken: %d", state)
				}
				time.Sleep(d)
				p.slotsOf["s1"].Give(s)
			}
		}
		for _, d := range []time.Duration{time.Second, 3 * time.Second} {
			hold(d, 30*countOneOf)
			if lasts := k.slots.nodes["a"].lasts; d-lasts.lasts > d/100 || time.Since(p.start)-lasts.at > countOneOf*d {
				t.Errorf("after holds of %s: %s, counted at %s of %s", d, lasts.lasts, lasts.at, time.Since(p.start))
			}
		}
	})
}
