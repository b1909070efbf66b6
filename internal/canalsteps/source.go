package canalsteps

// operation is a place in canal's code that others can see, or that depends on
// them: an atomic operation, a lock, what package context and the garbage
// collector do for it. The table below lists all of them, function by function in
// the order of the text, and TestModelHasEveryOperation compares it with the code.
// What is inside an index, as with the cells of a table, is called a cell.
type operation struct {
	text  string
	steps []pc   // what stands for it here
	why   string // or why nothing does
}

const (
	underLock = "nobody else can change it, so it is read in the step before"
	unseen    = "nobody else can see it yet"
	asClose   = "whether it calls the function changes nothing for others; after that it is a Close"
)

func is(text string, steps ...pc) operation   { return operation{text: text, steps: steps} }
func isNot(text string, why string) operation { return operation{text: text, why: why} }

var modelled = map[string][]operation{
	"Manager.Held": {is("mu.Lock", heldLock), is("mu.Unlock", heldUnlock), is("count.Load", heldLoad)},

	"entry.take":  {is("count.Load", takeLoad), is("count.CompareAndSwap", takeSwap)},
	"entry.lower": {is("count.Add", freeAdd), isNot("count.Add", "a Slot was copied")},

	"shard.init":    {isNot("cells.Store", unseen)},
	"shard.look":    {is("cells.Load", lookTable), is("cell.Load", lookCell)},
	"shard.enter":   {is("mu.Lock", enterLock), is("mu.Unlock", enterUnlock)},
	"shard.pin":     {is("mu.Lock", pinLock), is("mu.Unlock", pinUnlock)},
	"shard.unpin":   {is("mu.Lock", unpinLock), is("mu.Unlock", unpinUnlock)},
	"shard.crowded": {is("size.Load", freeCrowded, unpinLock)},
	"shard.drop":    {is("mu.Lock", dropLock), is("mu.Unlock", dropUnlock)},
	"shard.inUse": {is("mu.Lock", allLock), is("mu.Unlock", allUnlock), isNot("cells.Load", underLock),
		isNot("cell.Load", underLock), isNot("cells.Load", underLock), is("count.Load", allLoad)},
	"shard.evict": {is("count.CompareAndSwap", evictSwap), isNot("cells.Load", underLock), is("size.Add", evictSize)},
	"shard.insert": {isNot("size.Load", underLock), isNot("count.Store", unseen), is("size.Add", insertSize),
		isNot("cells.Load", underLock), isNot("cells.Load", underLock), isNot("cells.Load", underLock)},
	"shard.makeRoom": {isNot("cells.Load", underLock), isNot("cell.Load", underLock)},
	"shard.resize": {isNot("cells.Load", underLock), isNot("cell.Load", underLock),
		is("cells.Store", insertGrow, evictShrink)},
	"place": {isNot("cell.Load", underLock), is("cell.Store", insertPlace)},
	"remove": {isNot("cell.Load", underLock), isNot("cell.Load", underLock),
		is("cell.Store", removeMove), is("cell.Store", removeClear)},

	"Slot.Release": {is("state.CompareAndSwap", releaseSwap), is("state.Store", releaseStore)},
	"Slot.notHeld": {is("state.Load", releaseAsk)},
	"Slot.end":     {is("state.CompareAndSwap", endSwap), is("state.Store", endStore), is("state.Load", endWait)},
	"Slot.settled": {is("state.Load", noteOver)},

	"NewOwner":    {is("context.AfterFunc", contextStart)},
	"Owner.Close": {is("o.unwatch", unwatch)},
	"Owner.Do":    {isNot("ctx.Err", asClose), isNot("mu.Lock", asClose), isNot("mu.Unlock", asClose)},
	"Owner.end":   {is("mu.Lock", endLock), is("mu.Unlock", endUnlock)},
	"Owner.own":   {is("ctx.Err", ownContext, contextDone), is("mu.Lock", ownLock), is("mu.Unlock", ownUnlock)},

	"Manager.Handle": {is("runtime.AddCleanup", unpinLock)},
	"Handle.free":    {is("runtime.KeepAlive", unpinLock)},
	"Handle.acquire": {is("runtime.KeepAlive", handleLetGo)},
	"Handle.Held":    {is("count.Load", handleHeld), is("runtime.KeepAlive", handleLetGo)},
}

// outside are the steps that stand for nothing in canal: the application's.
var outside = []pc{viewLoad, resourcesChange}
