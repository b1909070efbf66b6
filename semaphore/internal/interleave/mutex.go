package interleave

// Mutex stands for sync.Mutex.
type Mutex struct {
	location
	past   uint64     // a hash of all earlier critical sections
	holder *goroutine // the goroutine that has locked it
}

// Lock locks m. The goroutine observes the past of m, and so every change of the memory that m
// guards.
func (m *Mutex) Lock() {
	m.turn(opLock)
	if m.locked {
		if g := world.running; g != nil {
			world.uses(g, &m.location, true) // if another goroutine has locked it, this pass is outdated, not wrong
		}
		world.fail("a goroutine locks a mutex twice, or the setup finds it locked")
	}
	m.locked, m.holder = true, world.running
	m.done(opLock, true, m.past, m.past, 0, 0)
}

// Unlock unlocks m.
func (m *Mutex) Unlock() {
	m.turn(opUnlock)
	if !m.locked {
		world.fail("Unlock of a mutex that is not locked")
	}
	m.locked, m.holder = false, nil
	if g := world.running; g != nil {
		m.past = mix(uint64(g.id), g.seen)
	}
	m.done(opUnlock, true, m.past, 0, 0, 0)
}

// Guarded returns field, which only the goroutine that has locked by may use.
func Guarded[T any](field *T, by *Mutex) *T {
	if g := world.running; g != nil && by.holder != g && !world.leaving {
		if world.story != nil {
			world.story.use(g)
		}
		world.fail("a field is used without the mutex that guards it")
	}
	return field
}
