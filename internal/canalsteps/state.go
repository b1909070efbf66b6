package canalsteps

import "math/bits"

// How much there can be of each in a scope. What is numbered counts from 1, and 0
// is none, so index 0 of these arrays stays empty.
const (
	mostWorkers = 5
	mostSlots   = 10
	mostKeys    = 3
	mostOwners  = 2
	mostHandles = mostWorkers
	mostCells   = 4 // of a table
	mostTables  = 4 // the shard's, and older ones that somebody still looks into
	generations = 4 // entries of one key, of which somebody still has the older ones in hand
	mostEntries = mostKeys * generations
	mostBuckets = 3 // of the designs in buckets.go and marker.go
)

// state is all there is at one moment. It has no pointers, so that two states can
// be compared by their bytes, which is quick as long as there are no gaps between
// the fields.
type state struct {
	shared
	workers [mostWorkers]worker
}

// worker is a goroutine between two of its steps. The registers are the local
// variables of canal's functions; those that nobody will read any more are zero,
// else states would count as different that are not.
type worker struct {
	call   uint8 // of its program, from 0
	at     pc    // its next step
	back   [3]pc // where the functions that it is in return to, the innermost last
	entry  uint8 // the entry whose slots it takes or frees
	victim uint8 // the entry that evict is about
	table  uint8 // the table in which it looks without the lock
	i      uint8 // how many cells look and makeRoom have been at, or the bucket
	hole   uint8 // the empty cell in remove
	slot   uint8 // the slot that the end of an owner, or note, is at
	seen   int8  // the count that it has loaded
	limit  uint8 // what it read of the resources, as a limit
	answer answer
	late   bool // truth: its owner was over before it asked
}

type answer uint8

const (
	none answer = iota
	granted
	full
	left
	ownerEnded
)

// shared is what the workers share, and the truth about it.
type shared struct {
	entries [mostEntries + 1]entry
	tables  [mostTables + 1]table
	slots   [mostSlots + 1]slot
	owners  [mostOwners + 1]owner
	handles [mostHandles + 1]handle
	buckets [mostBuckets]int8

	mu        uint8 // of the shard: who has it
	cells     uint8 // the shard's table
	size      uint8
	hand      uint8 // modulo 2*mostCells
	resources uint8 // how many the application has just now

	// The truth, which only the explorer looks at.
	truth  [mostSlots + 1]truth
	closed [mostOwners + 1]bool // a Close of the owner has returned, or its context's end is through
}

const gone = -1

// entry is one that is in a table, or was and is still in somebody's hands.
type entry struct {
	there bool
	count int8
	pins  uint8
}

func keyOf(e uint8) uint8 { return (e - 1) / generations }

type table struct {
	length uint8
	cells  [mostCells]uint8
}

type slot struct {
	state slotState
	of    uint8 // the entry, until somebody frees it
}

type slotState uint8

const (
	held slotState = iota
	freeing
	released
	ending
	ended
)

type owner struct {
	mu        uint8 // who has it
	ended     bool
	slots     uint16 // a bit for each slot that is noted
	room      uint16 // the capacity of the list
	done      bool   // its context is
	unwatched bool   // its context will not call end, or has
}

func (o *owner) noted() uint16 { return uint16(bits.OnesCount16(o.slots)) }

type handle struct {
	entry uint8
	letGo bool // nobody can reach it any more
}

// truth is who really holds a slot.
type truth uint8

const (
	neverHeld truth = iota
	reallyHeld
	freed
)
