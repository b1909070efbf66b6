package canalsteps

const (
	finished pc = iota

	// manager.go
	acquireStart
	viewLoad
	acquireSeen
	acquireFind
	acquireLooked
	acquired
	lookTable
	lookCell
	heldLock
	heldLoad
	heldUnlock
	allLock
	allCell
	allLoad
	allUnlock

	// entry.go
	takeLoad
	takeSwap
	freeAdd
	freeCrowded

	// shard.go
	enterLock
	enterUnlock
	pinLock
	pinUnlock
	unpinLock
	unpinUnlock
	dropLock
	dropUnlock
	insert
	insertSize
	insertGrow
	insertPlace
	makeRoom
	evict
	evictSwap
	removeNext
	removeMove
	removeClear
	evictSize
	evictShrink

	// slot.go
	releaseSwap
	releaseAsk
	releaseFreed
	releaseStore
	endSwap
	endStore
	endWait

	// owner.go
	ownContext
	ownLock
	ownNote
	noteOver
	noteAdd
	ownUnlock
	closeStart
	contextDone
	contextStart
	unwatch
	endLock
	endNext
	endUnlock

	// handle.go
	handleLetGo
	handleHeld

	// the application
	resourcesChange

	// Steps that only planted bugs have.
	planted1
	planted2
	planted3

	pcs
)

// first is the first step of each call.
var first = [...]pc{
	acquire:    acquireStart,
	release:    releaseSwap,
	closeOwner: closeStart,
	endContext: contextDone,
	pin:        pinLock,
	letGo:      handleLetGo,
	cleanUp:    unpinLock,
	askHeld:    heldLock,
	askHandle:  handleHeld,
	askAll:     allLock,
	see:        resourcesChange,
}

// canal is the algorithm of package canal.
var canal = algorithm{
	acquireStart:  glue("acquire", (*turn).acquireStart),
	viewLoad:      visible("the caller", (*turn).viewLoad),
	acquireSeen:   glue("acquire", (*turn).acquireSeen),
	acquireFind:   glue("acquire", (*turn).acquireFind),
	acquireLooked: glue("acquire", (*turn).acquireLooked),
	acquired:      glue("acquire", (*turn).acquired),
	lookTable:     visible("look", (*turn).lookTable),
	lookCell:      visible("look", (*turn).lookCell),
	heldLock:      visible("Held", (*turn).heldLock),
	heldLoad:      visible("Held", (*turn).heldLoad),
	heldUnlock:    visible("Held", (*turn).heldUnlock),
	allLock:       visible("All", (*turn).allLock),
	allCell:       glue("All", (*turn).allCell),
	allLoad:       visible("All", (*turn).allLoad),
	allUnlock:     visible("All", (*turn).allUnlock),

	takeLoad:    visible("take", (*turn).takeLoad),
	takeSwap:    visible("take", (*turn).takeSwap),
	freeAdd:     visible("free", (*turn).freeAdd),
	freeCrowded: visible("free", (*turn).freeCrowded),

	enterLock:   visible("enter", (*turn).enterLock),
	enterUnlock: visible("enter", (*turn).enterUnlock),
	pinLock:     visible("pin", (*turn).pinLock),
	pinUnlock:   visible("pin", (*turn).pinUnlock),
	unpinLock:   visible("unpin", (*turn).unpinLock),
	unpinUnlock: visible("unpin", (*turn).unpinUnlock),
	dropLock:    visible("drop", (*turn).dropLock),
	dropUnlock:  visible("drop", (*turn).dropUnlock),
	insert:      glue("insert", (*turn).insert),
	insertSize:  visible("insert", (*turn).insertSize),
	insertGrow:  visible("insert", (*turn).insertGrow),
	insertPlace: visible("insert", (*turn).insertPlace),
	makeRoom:    glue("makeRoom", (*turn).makeRoom),
	evict:       glue("evict", (*turn).evict),
	evictSwap:   visible("evict", (*turn).evictSwap),
	removeNext:  glue("remove", (*turn).removeNext),
	removeMove:  visible("remove", (*turn).removeMove),
	removeClear: visible("remove", (*turn).removeClear),
	evictSize:   visible("evict", (*turn).evictSize),
	evictShrink: visible("evict", (*turn).evictShrink),

	releaseSwap:  visible("Release", (*turn).releaseSwap),
	releaseAsk:   visible("Release", (*turn).releaseAsk),
	releaseFreed: glue("Release", (*turn).releaseFreed),
	releaseStore: visible("Release", (*turn).releaseStore),
	endSwap:      visible("Slot.end", (*turn).endSwap),
	endStore:     visible("Slot.end", (*turn).endStore),
	endWait:      visible("Slot.end", (*turn).endWait),

	ownContext:   visible("own", (*turn).ownContext),
	ownLock:      visible("own", (*turn).ownLock),
	ownNote:      glue("note", (*turn).ownNote),
	noteOver:     visible("note", (*turn).noteOver),
	noteAdd:      glue("note", (*turn).noteAdd),
	ownUnlock:    visible("own", (*turn).ownUnlock),
	closeStart:   glue("Close", (*turn).closeStart),
	contextDone:  visible("the context", (*turn).contextDone),
	contextStart: visible("the context", (*turn).contextStart),
	unwatch:      visible("Close", (*turn).unwatch),
	endLock:      visible("Owner.end", (*turn).endLock),
	endNext:      glue("Owner.end", (*turn).endNext),
	endUnlock:    visible("Owner.end", (*turn).endUnlock),

	handleLetGo: visible("the caller", (*turn).handleLetGo),
	handleHeld:  visible("Handle.Held", (*turn).handleHeld),

	resourcesChange: visible("the application", (*turn).resourcesChange),
}

func visible(name string, run func(*turn)) step { return step{name: name, run: run} }
func glue(name string, run func(*turn)) step    { return step{name: name, run: run, glue: true} }
