package interleave_test

import (
	"cmp"
	"reflect"
	"unsafe"

	"github.com/lockkeeper/lockkeeper/semaphore"
	"github.com/lockkeeper/lockkeeper/semaphore/internal/interleave"
)

// bench is where a program works: a manager, owners, and slots. All its calls are
// judged.
type bench struct {
	w        *interleave.World
	m        *semaphore.Manager[string]
	setup    *caller
	callers  int8
	slots    [mostSlots]*semaphore.Slot
	owners   [mostOwners + 1]*semaphore.Owner
	contexts [mostOwners + 1]*interleave.Cancelable
}

// caller is a goroutine of a program, or who sets it up.
type caller struct {
	*bench
	by    int8
	slot  int8 // the next one it may use
	until int8

	uses    bool             // a slot that it forgets when it has released it
	place   uint64           // how many calls it has made
	holds   []uint64         // numbers of the slots it has got
	entries []unsafe.Pointer // of what it holds
}

// slot is the number of one; 0 is none.
type slot int8

// slotsBefore and slotsEach are how many slots a program may acquire before it
// begins, and each goroutine then.
const (
	slotsBefore = 5
	slotsEach   = 3
)

// shape is what makes a small program meet what only large ones do. What is 0 is 1.
type shape struct {
	keys   map[string]uint64 // their hashes; in the table of a shard, only the last bits matter
	idle   int               // idleKeys
	shards int               // mostShards
	every  int               // roomEvery
	cells  int               // smallest; what is 0 is 4
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

// call makes a call that is judged.
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

// knows notes that the goroutine holds a slot, or a handle, and so an entry.
func (c *caller) knows(number uint64, entry unsafe.Pointer) {
	if c.by > 0 {
		c.holds = append(c.holds, number)
		c.entries = append(c.entries, entry)
	}
}

// entryOf is the entry that a slot is of, or a handle.
func entryOf(v reflect.Value) unsafe.Pointer {
	if entry := v.Elem().FieldByName("entry"); entry.IsValid() {
		return entry.UnsafePointer()
	}
	return v.UnsafePointer()
}

// returns tells that a call has come back. Between calls a goroutine knows where
// in the program it is, and what it holds.
func (c *caller) returns(e event) {
	knows := c.place
	for _, number := range c.holds {
		knows = knows<<5 | number
	}
	c.w.Return(e.pack(), knows, c.entries...)
}
