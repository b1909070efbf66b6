package canalsteps

import "fmt"

// scope is a small world to explore: what each worker calls one after the other,
// and how large the shard is.
type scope struct {
	name     string
	programs [][]call
	views    uint8    // the resources that there are at the beginning
	keep     uint8    // as many idle entries may stay
	hashes   [3]uint8 // of the keys: the cells from which their entries are looked for
	smallest uint8    // cells of the table at the beginning: 2 or 4
	dense    bool     // three quarters of the cells may be in use, instead of half
	rounds   uint8    // cells that makeRoom looks at
	stay     bool     // the programs end with slots in use
	large    bool     // it takes long

	// Of a planted bug:
	plant   func(*algorithm)
	ignored ruleSet // what it breaks besides what it is there for
	maxPer  uint8   // slots of one bucket

	// What prepare finds in the programs:
	asked    [mostSlots + 1]asking // by slot
	contexts [mostOwners + 1]bool  // by owner: it has one that ends
}

// asking is what there is to know of a slot before anything happens.
type asking struct{ key, n, owner, limit, handle uint8 }

// prepare fills in what follows from the programs.
func (sc *scope) prepare() {
	for _, program := range sc.programs {
		for _, c := range program {
			switch c.verb {
			case acquire:
				if sc.asked[c.slot].n > 0 {
					panic(fmt.Sprintf("%s: slot %d is taken by two calls", sc.name, c.slot))
				}
				sc.asked[c.slot] = asking{c.key, c.n, c.owner, c.limit, c.handle}
			case endContext:
				sc.contexts[c.owner] = true
			}
		}
	}
}

// call is one call of a worker.
type call struct {
	verb          verb
	key, slot     uint8
	n, limit      uint8
	maxPer        uint8 // if not 0, the limit is as many for each resource that the caller sees
	owner, handle uint8
	resources     uint8
}

type verb uint8

const (
	acquire verb = iota
	release
	closeOwner
	endContext
	pin
	letGo
	cleanUp
	askHeld
	askHandle
	askAll
	see
)

const keys = "abc"

func key(name string) uint8 { return name[0] - 'a' }

// take is TryAcquireN; the slot has a number by which it is released.
func take(slot uint8, k string, n, limit uint8) call {
	return call{verb: acquire, slot: slot, key: key(k), n: n, limit: limit}
}

// by makes it the call of a handle.
func (c call) by(handle uint8) call { c.handle = handle; return c }

// as makes it a call for an owner.
func (c call) as(owner uint8) call { c.owner = owner; return c }

// takeSeen is a take with maxPer times the resources that there are as limit.
func takeSeen(slot uint8, k string, n, maxPer uint8) call {
	return call{verb: acquire, slot: slot, key: key(k), n: n, maxPer: maxPer}
}

func give(slot uint8) call          { return call{verb: release, slot: slot} }
func closes(owner uint8) call       { return call{verb: closeOwner, owner: owner} }
func contextEnds(owner uint8) call  { return call{verb: endContext, owner: owner} }
func pins(h uint8, k string) call   { return call{verb: pin, handle: h, key: key(k)} }
func letsGo(h uint8) call           { return call{verb: letGo, handle: h} }
func cleansUp(h uint8) call         { return call{verb: cleanUp, handle: h} }
func heldOf(k string) call          { return call{verb: askHeld, key: key(k)} }
func heldBy(h uint8, k string) call { return call{verb: askHandle, handle: h, key: key(k)} }
func walks() call                   { return call{verb: askAll} }
func sees(resources uint8) call     { return call{verb: see, resources: resources} }

func (c call) String() string {
	k := string(keys[c.key])
	switch c.verb {
	case acquire:
		text := fmt.Sprintf("acquire %s, %d of %d", k, c.n, c.limit)
		if c.maxPer > 0 {
			text = fmt.Sprintf("acquire %s, %d of %d for each resource", k, c.n, c.maxPer)
		}
		if c.owner > 0 {
			text += fmt.Sprintf(", for owner %d", c.owner)
		}
		if c.handle > 0 {
			text += fmt.Sprintf(", by handle %d", c.handle)
		}
		return text
	case release:
		return fmt.Sprintf("release slot %d", c.slot)
	case closeOwner:
		return fmt.Sprintf("close owner %d", c.owner)
	case endContext:
		return fmt.Sprintf("end the context of owner %d", c.owner)
	case pin:
		return fmt.Sprintf("make handle %d of %s", c.handle, k)
	case letGo:
		return fmt.Sprintf("let go of handle %d", c.handle)
	case cleanUp:
		return fmt.Sprintf("clean up after handle %d", c.handle)
	case askHeld:
		return "how many hold " + k
	case askHandle:
		return fmt.Sprintf("how many hold %s, by handle %d", k, c.handle)
	case askAll:
		return "who holds what"
	}
	return fmt.Sprintf("there are %d resources now", c.resources)
}

// sized gives the shard of a scope a size, if it has none.
func (sc scope) sized() scope {
	if sc.smallest == 0 {
		sc.smallest = 2
	}
	sc.rounds = 1 + sc.keep
	return sc
}
