package semaphore_test

import (
	"context"

	"github.com/lockkeeper/lockkeeper/semaphore"
)

// The ways to use a manager, for the comparison with its peers.

// manager has the slots of a field in use that it wants in use.
func manager(f *field) *semaphore.Manager[string] {
	m := semaphore.New[string]()
	for _, k := range f.keys {
		if !f.full {
			break
		}
		if _, err := m.TryAcquireN(k, f.limit, f.limit); err != nil {
			panic(err)
		}
	}
	return m
}

var byKey = peer{"canal", func(f *field) loop {
	m := manager(f)
	return func(w *walk, n int) (granted int) {
		at := *w
		for range n {
			if slot, err := m.TryAcquire(f.keys[at.next()], f.limit); err == nil {
				slot.Release()
				granted++
			}
		}
		*w = at
		return granted
	}
}}

// The slot leaves the function that takes it, and has to be allocated.
var byKeyEscaping = peer{"canal, slot escapes", func(f *field) loop {
	m := manager(f)
	return func(w *walk, n int) (granted int) {
		at := *w
		for range n {
			if slot := acquired(m, f.keys[at.next()], f.limit); slot != nil {
				slot.Release()
				granted++
			}
		}
		*w = at
		return granted
	}
}}

//go:noinline
func acquired(m *semaphore.Manager[string], key string, limit int) *semaphore.Slot {
	slot, err := m.TryAcquire(key, limit)
	if err != nil {
		return nil
	}
	return slot
}

var byHandle = peer{"canal by Handle", func(f *field) loop {
	m := manager(f)
	handles := make([]*semaphore.Handle[string], len(f.keys))
	for i, k := range f.keys {
		handle, err := m.Handle(k)
		if err != nil {
			panic(err)
		}
		handles[i] = handle
	}
	return func(w *walk, n int) (granted int) {
		at := *w
		for range n {
			if slot, err := handles[at.next()].TryAcquire(f.limit); err == nil {
				slot.Release()
				granted++
			}
		}
		*w = at
		return granted
	}
}}

// Each goroutine has an owner of its own.
var byOwner = peer{"canal for an Owner", func(f *field) loop {
	m := manager(f)
	return func(w *walk, n int) (granted int) {
		at, owner := *w, semaphore.NewOwner(context.Background())
		defer owner.Close()
		for range n {
			if slot, err := m.TryAcquireFor(owner, f.keys[at.next()], 1, f.limit); err == nil {
				slot.Release()
				granted++
			}
		}
		*w = at
		return granted
	}
}}
