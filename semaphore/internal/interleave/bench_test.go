package interleave_test

import (
	"cmp"
	"reflect"
	"unsafe"

	"github.com/lockkeeper/lockkeeper/semaphore"
	"github.com/lockkeeper/lockkeeper/semaphore/internal/interleave"
)

// bench has the manager, owners and slots of a program. The judge records all its calls.
type bench struct {
	w        *interleave.World
	m        *semaphore.Manager[string]
	setup    *caller
	callers  int8
	slots    [maxSlots]*semaphore.Slot
	owners   [maxOwners + 1]*semaphore.Owner
	contexts [maxOwners + 1]*interleave.Cancelable
}

// caller is a goroutine of a program, or the setup.
type caller struct {
	*bench
	by    int8
	slot  int8 // the number of its next slot
	until int8

	uses    bool             // it forgets the slot after the release
	place   uint64           // number of its calls
	holds   []uint64         // numbers of its slots
	entries []unsafe.Pointer // entries of its slots and handles
}

// slot is the number of a slot; 0 is none.
type slot int8

// slotsBefore bounds the slots that the setup may acquire, slotsEach those of each goroutine.
const (
	slotsBefore = 5
	slotsEach   = 3
)

// shape sets hashes and knobs so that a small program reaches the states of a large one. 0 means 1.
type shape struct {
	keys   map[string]uint64 // their hashes; the table of a shard uses the last bits
	idle   int               // maxIdle
	shards int               // maxShards
	every  int               // evictEvery
	cells  int               // minCells; 0 means 4
	owners int
}

func newBench(w *interleave.World, s shape) *bench {
	w.Set("maxIdle", cmp.Or(s.idle, 1))
	w.Set("maxShards", cmp.Or(s.shards, 1))
	w.Set("evictEvery", cmp.Or(s.every, 1))
	w.Set("minCells", cmp.Or(s.cells, 4))
	for key, hash := range s.keys {
		w.Hash(key, hash)
	}
	b := &bench{w: w, m: semaphore.New[string]()}
	w.Share(1, b.m)
	for o := 1; o <= s.owners; o++ {
		b.contexts[o] = &interleave.Cancelable{}
		w.Share(uint16(10+o), b.contexts[o])
		b.owners[o] = semaphore.NewOwner(b.contexts[o])
		w.Share(uint16(20+o), b.owners[o])
	}
	b.setup = &caller{bench: b, slot: 1, until: slotsBefore}
	return b
}

// do adds a goroutine.
func (b *bench) do(does func(*caller)) {
	first := slotsBefore + 1 + slotsEach*b.callers
	b.callers++
	c := &caller{bench: b, by: b.callers, slot: first, until: first + slotsEach - 1}
	b.w.Go("", func() { does(c) })
}

// call makes a call, which the judge records.
func (c *caller) call(e event, f func() int16) int16 {
	e.by = c.by
	c.w.Call(e.pack())
	e.result = f()
	e.returned = true
	c.place++
	if c.uses && e.verb == acquire && e.result <= 0 {
		c.place++ // as if it had been released, too
	}
	c.returns(e)
	return e.result
}

// knows records that the goroutine has a slot or a handle, and so an entry.
func (c *caller) knows(number uint64, entry unsafe.Pointer) {
	if c.by > 0 {
		c.holds = append(c.holds, number)
		c.entries = append(c.entries, entry)
	}
}

// entryOf returns the entry of a slot or a handle.
func entryOf(v reflect.Value) unsafe.Pointer {
	if entry := v.Elem().FieldByName("entry"); entry.IsValid() {
		return entry.UnsafePointer()
	}
	return v.UnsafePointer()
}

// returns announces a return. Between calls a goroutine knows its place in the program and what it
// holds.
func (c *caller) returns(e event) {
	knows := c.place
	for _, number := range c.holds {
		knows = knows<<5 | number
	}
	c.w.Return(e.pack(), knows, c.entries...)
}
