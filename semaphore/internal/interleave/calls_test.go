package interleave_test

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/lockkeeper/lockkeeper/semaphore"
)

// use acquires a slot and releases it if it was granted. Afterwards the goroutine knows nothing of
// the slot, not even whether it was granted.
func (c *caller) use(key string, limit int) {
	c.forgetting(func() slot { return c.acquire(key, limit) }, c.release)
}

func (c *caller) forgetting(acquire func() slot, release func(slot)) {
	number, holds := c.slot, len(c.holds)
	c.uses = true
	if s := acquire(); s != 0 {
		c.holds, c.entries = c.holds[:holds], c.entries[:holds]
		release(s)
		c.w.Drop(c.slots[s])
	}
	c.slot, c.uses = number, false
}

// acquires makes an acquire with any method.
func (c *caller) acquires(key string, n, limit int, owner int8, try func() (*semaphore.Slot, error)) slot {
	number := c.slot
	if number > c.until {
		panic("the program uses too many slots")
	}
	c.slot++
	e := event{verb: acquire, key: int8(key[0] - 'a'), n: int8(n), limit: int8(limit), owner: owner, slot: number}
	if c.call(e, func() int16 {
		s, err := try()
		switch {
		case errors.Is(err, semaphore.ErrFull):
			return isFull
		case errors.Is(err, semaphore.ErrOwnerEnded):
			return ownerEnded
		case err != nil || s.N() != n:
			panic(fmt.Sprint(s, err))
		}
		c.slots[number] = s
		c.w.Share(uint16(30+number), s)
		c.knows(uint64(number), entryOf(reflect.ValueOf(s).Elem().FieldByName("of").Elem()))
		return int16(s.Ordinal())
	}) > 0 {
		return slot(number)
	}
	return 0
}

func (c *caller) acquire(key string, limit int) slot { return c.acquireN(key, 1, limit) }

func (c *caller) acquireN(key string, n, limit int) slot {
	return c.acquires(key, n, limit, 0, func() (*semaphore.Slot, error) { return c.m.TryAcquireN(key, n, limit) })
}

func (c *caller) acquireFor(owner int8, key string, limit int) slot {
	return c.acquires(key, 1, limit, owner, func() (*semaphore.Slot, error) {
		return c.m.TryAcquireFor(c.owners[owner], key, 1, limit)
	})
}

func (c *caller) acquireBy(h *semaphore.Handle[string], key string, limit int) slot {
	return c.acquires(key, 1, limit, 0, func() (*semaphore.Slot, error) { return h.TryAcquire(limit) })
}

func (c *caller) acquireForBy(h *semaphore.Handle[string], owner int8, key string, limit int) slot {
	return c.acquires(key, 1, limit, owner, func() (*semaphore.Slot, error) {
		return h.TryAcquireFor(c.owners[owner], 1, limit)
	})
}

// release releases a slot, unless it is 0.
func (c *caller) release(s slot) {
	if s == 0 {
		return
	}
	e := event{verb: release, slot: int8(s)}
	if c.uses {
		e.n = 1
	}
	c.call(e, func() int16 {
		switch err := c.slots[s].Release(); {
		case err == nil:
			return isReleased
		case errors.Is(err, semaphore.ErrOwnerEnded):
			return ownerEnded
		default:
			return isNotHeld
		}
	})
}

func (c *caller) close(owner int8) {
	c.call(event{verb: closing, owner: owner}, func() int16 { c.owners[owner].Close(); return 0 })
}

func (c *caller) cancel(owner int8) {
	c.call(event{verb: cancel, owner: owner}, func() int16 { c.contexts[owner].Cancel(); return 0 })
}

// useBy is use with a handle.
func (c *caller) useBy(h *semaphore.Handle[string], key string, limit int) {
	c.forgetting(func() slot { return c.acquireBy(h, key, limit) }, c.release)
}

// useLast is useBy, after which the program has no reference to the handle. A granted slot may
// refer to it, up to its Release.
func (c *caller) useLast(h *semaphore.Handle[string], key string, limit int) {
	refers := false
	c.forgetting(func() (s slot) {
		c.w.LastUse("TryAcquire", h, func() {
			s = c.acquireBy(h, key, limit)
			if refers = s != 0 && c.refersTo(s, h); refers {
				c.w.Keep(h)
			}
		})
		return s
	}, func(s slot) {
		if refers {
			c.w.LastUse("Release", h, func() { c.release(s) })
		} else {
			c.release(s)
		}
	})
}

// refersTo reports whether a slot refers to the handle that it was acquired by.
func (c *caller) refersTo(s slot, h *semaphore.Handle[string]) bool {
	of := reflect.ValueOf(c.slots[s]).Elem().FieldByName("of").Elem()
	return of.Type() == reflect.TypeOf(h)
}

func (c *caller) held(key string) {
	c.call(event{verb: held, key: int8(key[0] - 'a')}, func() int16 { return int16(c.m.Held(key)) })
}

func (c *caller) heldBy(h *semaphore.Handle[string], key string) {
	c.call(event{verb: held, key: int8(key[0] - 'a')}, func() int16 { return int16(h.Held()) })
}

// heldLast is heldBy, after which the program has no reference to the handle.
func (c *caller) heldLast(h *semaphore.Handle[string], key string) {
	c.w.LastUse("Held", h, func() { c.heldBy(h, key) })
}

// all calls All, which must not yield a key without held slots.
func (c *caller) all() {
	c.call(event{verb: all}, func() (result int16) {
		for key, n := range c.m.All() {
			if n < 1 {
				panic(fmt.Sprintf("All yields %s with %d slots in use", key, n))
			}
			result += int16(n) << (4 * (key[0] - 'a'))
		}
		return result
	})
}

// during calls Do with f. For the judge these are two calls: one up to the beginning of f, and one
// from its end, which closes the owner.
func (c *caller) during(owner int8, f func()) {
	e := event{by: c.by, verb: begin, owner: owner}
	end := event{by: c.by, verb: closing, owner: owner}
	begun := false
	c.w.Call(e.pack())
	e.returned = true
	err := c.owners[owner].Do(func() error {
		begun = true
		e.result = 1
		c.returns(e)
		f()
		c.w.Call(end.pack())
		return nil
	})
	switch {
	case begun:
		end.returned = true
		c.returns(end)
	case errors.Is(err, semaphore.ErrOwnerEnded):
		e.result = ownerEnded
		c.returns(e)
	default:
		panic(err)
	}
}

// handle makes a handle; the judge does not record it.
func (c *caller) handle(key string) *semaphore.Handle[string] {
	h, err := c.m.Handle(key)
	if err != nil {
		panic(err)
	}
	c.knows(0, entryOf(reflect.ValueOf(h)))
	return h
}
