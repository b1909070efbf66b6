package interleave

// Mutex stands for sync.Mutex.
type Mutex struct {
	location
	past uint64     // a hash of all critical sections up to now
	who  *goroutine // has it locked
}

// Lock locks it. Whoever locks it observes its past, and so all that may have
// happened to the memory that it guards.
func (m *Mutex) Lock() {
	m.turn(opLock)
	if m.locked {
		if g := world.running; g != nil {
			world.uses(g, &m.location, true) // if another one has it, that is a surprise, and not wrong
		}
		world.fail("a mutex is locked by who has it, or by who is alone")
	}
	m.locked, m.who = true, world.running
	m.done(opLock, true, m.past, m.past, 0, 0)
}

// Unlock unlocks it.
func (m *Mutex) Unlock() {
	m.turn(opUnlock)
	if !m.locked {
		world.fail("a mutex is unlocked that is not locked")
	}
	m.locked, m.who = false, nil
	if g := world.running; g != nil {
		m.past = mix(uint64(g.id), g.seen)
	}
	m.done(opUnlock, true, m.past, 0, 0, 0)
}

// Guarded returns field, which may be used only by who has locked the mutex by.
func Guarded[T any](field *T, by *Mutex) *T {
	if g := world.running; g != nil && by.who != g && !world.leaving {
		if world.told != nil {
			world.told.use(g)
		}
		world.fail("a field is used without the mutex that guards it")
	}
	return field
}
