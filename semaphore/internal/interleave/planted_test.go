package interleave_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// planted is a bug in package semaphore that some schedule of a program must show.
type planted struct {
	bug     string // its effect on a caller, and what causes it
	program string
	patches []patch
}

// plantedBugs lists every bug that the explorer has to find, in the order of the files that it is
// planted in.
var plantedBugs = []planted{
	// entry.go: the counter of a key.
	{"too many slots are granted: take compares and adds in two steps", "four goroutines use one key", []patch{{
		"entry.go", "if e.count.CompareAndSwap(count, count+int64(n)) {", "if e.count.Store(count + int64(n)); true {",
	}}},
	{"too few slots are granted: take adds first and subtracts when it is refused", "limits 1, 2 and 3 on one key",
		[]patch{{
			"entry.go", takes, "if e.count.Load() == removed {\n\t\t\treturn 0, stale\n\t\t}\n" +
				"\t\tcount := e.count.Add(int64(n))\n\t\tif count > int64(limit) {\n" +
				"\t\t\te.count.Add(-int64(n))\n\t\t\treturn 0, full\n\t\t}\n\t\treturn int(count), granted\n",
		}}},
	{"callers block each other: take adds first, subtracts when it is refused, and repeats", "four goroutines use one key",
		[]patch{{
			"entry.go", takes, "if e.count.Load() == removed {\n\t\t\treturn 0, stale\n\t\t}\n" +
				"\t\tcount := e.count.Add(int64(n))\n\t\tif count > int64(limit) {\n" +
				"\t\t\te.count.Add(-int64(n))\n\t\t\tcontinue\n\t\t}\n\t\treturn int(count), granted\n",
		}}},
	{"a wrong ordinal: take reads the count again after the grant", "limits 1, 2 and 3 on one key", []patch{{
		"entry.go", "return int(count) + n, granted", "return int(e.count.Load()), granted",
	}}},
	{"too many slots are granted: take ignores that the entry has left its shard", "a key leaves and returns", []patch{{
		"entry.go", "if count == removed {", "if count < removed {",
	}}},
	{"refused with free slots: an entry that has left its shard counts as full", "an idle key makes room for another",
		[]patch{{"entry.go", "return 0, stale\n", "return 0, full\n"}}},
	{"a release is lost beside an acquire", "limits 1, 2 and 3 on one key", []patch{{
		"entry.go", "count := e.count.Add(-int64(n))", "count := e.count.Load() - int64(n)\n\te.count.Store(count)",
	}}},
	{"idle keys accumulate: the last release keeps the entry", "three keys, of which one may stay idle", []patch{{
		"entry.go", "== 0 && e.shard.crowded() {", "== 0 && e.shard == nil {",
	}}},

	// shard.go: how entries come and go.
	{"a key has two counters: takeSlow does not look again under the lock", "three goroutines create a key", []patch{{
		"shard.go", "if e := s.lookup(hash, key); e != nil {\n\t\tordinal, result",
		"if e := s.lookup(hash, key); e != nil && n < 0 {\n\t\tordinal, result",
	}}},
	{"idle keys accumulate: a refused attempt creates its key", "refused attempts on unknown keys", []patch{
		{"manager.go", "if n > limit {\n\t\t\treturn nil, errLimitTooLow",
			"if n > limit && limit < 0 {\n\t\t\treturn nil, errLimitTooLow"},
		{"shard.go", "e = s.insert(hash, key, int64(n))\n\treturn e, n, granted",
			"if n > limit {\n\t\treturn s.insert(hash, key, 0), 0, full\n\t}\n" +
				"\te = s.insert(hash, key, int64(n))\n\treturn e, n, granted"},
	}},
	{"a held key leaves: evict marks the entry in two steps", "a key leaves and returns", []patch{{
		"shard.go", evicts, "if e.pins > 0 || e.count.Load() != 0 {\n\t\treturn\n\t}\n\te.count.Store(removed)\n",
	}}},
	{"a held key leaves: evict does not look whether the entry is idle", "a key leaves and returns", []patch{{
		"shard.go", evicts, "if e.pins > 0 || e.count.Load() == removed || s.lookup(e.hash, e.key) != e {\n\t\treturn\n\t}\n",
	}}},
	{"a held key leaves: evict does not mark the entry", "a key leaves and returns", []patch{{
		"shard.go", evicts, "if e.pins > 0 || e.count.Load() != 0 || s.lookup(e.hash, e.key) != e {\n\t\treturn\n\t}\n",
	}}},
	{"refused with free slots: drop removes a marked entry in a second critical section", "a key leaves and returns",
		[]patch{{
			"shard.go", "\ts.evict(e)\n}\n\n// evict",
			"\tif e.pins > 0 || !e.count.CompareAndSwap(0, removed) {\n\t\treturn\n\t}\n" +
				"\ts.mu.Unlock()\n\ts.mu.Lock()\n\tremove(*s.cells.Load(), e)\n\ts.size.Add(-1)\n}\n\n// evict",
		}}},
	{"a key has two counters: remove leaves an empty cell before another key's entry", "a key leaves ahead of another",
		[]patch{{"shard.go", "if (i-next.hash)&mask >= (i-hole)&mask {", "if (i-next.hash)&mask > mask {"}}},
	{"a key has two counters: remove moves an entry ahead of its first cell", "a key leaves ahead of two others", []patch{{
		"shard.go", "if (i-next.hash)&mask >= (i-hole)&mask {", "if (i-next.hash)&mask <= mask {",
	}}},
	{"a key has two counters: a resized table is published before it is filled", "the table grows during a search",
		[]patch{{
			"shard.go", "\ts.cells.Store(&cells)\n}\n\n// put",
			"\tempty := make([]cell[K], length)\n\ts.cells.Store(&empty)\n}\n\n// put",
		}}},
	{"a key has two counters: insert puts an entry into the table before the resize", "the table grows during a search",
		[]patch{{
			"shard.go", "if size := s.size.Add(1); size > int64(len(*s.cells.Load())/2) {\n\t\ts.resize(2 * " +
				"len(*s.cells.Load()))\n\t}\n\tput(*s.cells.Load(), e)",
			"cells := *s.cells.Load()\n\tif size := s.size.Add(1); size > int64(len(cells)/2) {\n\t\ts.resize(2 * " +
				"len(cells))\n\t}\n\tput(cells, e)",
		}}},
	{"All yields a key that is not in use: it reads the count twice", "All and Held beside changes", []patch{{
		"shard.go", "all = append(all, usage[K]{e.key, int(n)})",
		"all = append(all, usage[K]{e.key, int(e.count.Load())})",
	}}},

	// shard.go, handle.go: handles.
	{"a key leaves although a handle pins it", "a handle beside its key, which would leave", []patch{{
		"shard.go", "if e.pins > 0 || !e", "if !e",
	}}},
	{"a key leaves with the first of its handles", "one of two handles ends", []patch{{
		"shard.go", "e.pins--\n", "e.pins = 0\n",
	}}},
	{"idle keys accumulate: the last handle keeps the entry", "two handles end with their slots", []patch{{
		"shard.go", "\te.pins--\n\tif s.crowded() {\n\t\ts.evict(e)\n\t}\n", "\te.pins--\n",
	}}},
	{"the cleanup of a handle deadlocks: unpin locks the shard twice", "a handle ends while its key is used", []patch{{
		"shard.go", "if s.crowded() {\n\t\ts.evict(e)", "if s.crowded() {\n\t\ts.drop(e)",
	}}},
	{"a handle pins an entry that is leaving", "a handle is created while its key leaves", []patch{{
		"shard.go", "s.mu.Lock()\n\tdefer s.mu.Unlock()\n\te := s.lookup(hash, key)", "e := s.lookup(hash, key)",
	}}},
	{"a key leaves during the last acquire of its handle", "a handle ends while its key is used", []patch{
		{"handle.go", "\tordinal, result := h.entry.take(n, limit)\n",
			"\te := h.entry\n\tordinal, result := e.take(n, limit)\n"},
		{"handle.go", "\truntime.KeepAlive(h)\n\tif result != granted {", "\tif result != granted {"},
		{"handle.go", "grant{h, n, ordinal}", "grant{e, n, ordinal}"},
	}},
	{"idle keys accumulate: a handle ends before its last slot is free", "two handles end with their slots", []patch{{
		"handle.go", "\th.entry.lower(n)\n" + keepsUntilFree + "\truntime.KeepAlive(h)\n", "\th.entry.lower(n)\n",
	}}},
	{"a key leaves during the last Held of its handle", "a handle ends with Held", []patch{{
		"handle.go", keepsUntilRead + "\truntime.KeepAlive(h)\n", "",
	}}},

	// slot.go: who frees a slot.
	{"a slot is freed twice: Release compares and sets the state in two steps", "two goroutines release one slot",
		[]patch{{
			"slot.go", "if !s.state.CompareAndSwap(held, freeing) {",
			"if held := s.state.Load() == held; held {\n\t\ts.state.Store(freeing)\n\t} else {",
		}}},
	{"a slot is freed twice: Release sets the state after it has freed the slot", "two goroutines release one slot",
		[]patch{
			{"slot.go", "if !s.state.CompareAndSwap(held, freeing) {", "if s.state.Load() != held {"},
			{"slot.go", "s.of.free(s.n)\n\tif s.owned {\n", "s.of.free(s.n)\n\ts.state.Store(freeing)\n\tif s.owned {\n"},
		}},
	{"a slot is freed twice: end compares and sets the state in two steps",
		"an owner ends beside an acquire and a release",
		[]patch{{
			"slot.go", "if s.state.CompareAndSwap(held, ending) {",
			"if held := s.state.Load() == held; held {\n\t\ts.state.Store(ending)",
		}}},
	{"a slot is freed twice: end frees what a Release is freeing", "an owner ends beside an acquire and a release",
		[]patch{{
			"slot.go", "if s.state.CompareAndSwap(held, ending) {", "if !s.isFree() {\n\t\ts.state.Store(ending)",
		}}},
	{"Close returns too early: end does not wait for a Release", "an owner ends beside an acquire and a release", []patch{{
		"slot.go", "for s.state.Load() == freeing {", "for s.state.Load() == freeing+4 {",
	}}},
	{"Close returns too early: Release sets its last state before it frees the slot",
		"an owner ends beside an acquire and a release", []patch{{
			"slot.go", "s.of.free(s.n)\n\tif s.owned {\n\t\ts.state.Store(released)\n\t}\n",
			"if s.owned {\n\t\ts.state.Store(released)\n\t}\n\ts.of.free(s.n)\n",
		}}},
	{"Close blocks forever: Release never sets its last state", "an owner ends beside an acquire and a release", []patch{{
		"slot.go", "s.state.Store(released)", "s.state.Store(freeing)",
	}}},

	// owner.go: owners and their ends.
	{"Close returns too early: the owner's list drops a slot that is being released", "the list of an owner is compacted",
		[]patch{{"slot.go", "return state == released || state == ended", "return state != held"}}},
	{"Close returns too early: the goroutine of the context is still freeing slots", "the context of an owner ends",
		[]patch{{
			"owner.go", "if o.stopWatching != nil {\n\t\to.stopWatching()\n\t}",
			"if o.stopWatching != nil && !o.stopWatching() {\n\t\treturn\n\t}",
		}}},
	{"Close returns too early: end frees the slots after it has unlocked the owner", "two Closes and a Release", []patch{{
		"owner.go",
		"\tdefer o.mu.Unlock()\n\to.ended = true\n\tfor _, s := range o.slots {\n\t\ts.end()\n\t}\n\to.slots = nil\n",
		"\tslots := o.slots\n\to.ended, o.slots = true, nil\n\to.mu.Unlock()\n\tfor _, s := range slots " +
			"{\n\t\ts.end()\n\t}\n",
	}}},
	{"a slot of an ended owner is never freed: acquire unlocks the owner before it takes the slot",
		"an owner ends beside an acquire and a release", []patch{
			{"owner.go", "\tdefer o.mu.Unlock()\n\tif o.ended {\n\t\treturn nil, ErrOwnerEnded\n\t}\n\tg, err",
				"\tended := o.ended\n\to.mu.Unlock()\n\tif ended {\n\t\treturn nil, ErrOwnerEnded\n\t}\n\tg, err"},
			{"owner.go", "\to.add(s)\n\treturn s, nil", "\to.mu.Lock()\n\tdefer o.mu.Unlock()\n\to.add(s)\n\treturn s, nil"},
		}},
	{"an owner uses its list without its lock", "an owner ends beside an acquire and a release", []patch{{
		"owner.go", "o.mu.Lock()\n\tdefer o.mu.Unlock()\n\tif o.ended {", "if o.ended {",
	}}},
	{"an owner acquires after its Close", "an owner ends beside an acquire and a release", []patch{{
		"owner.go", "if o.ended {", "if o.ended && false {",
	}}},
	{"an owner acquires after the end of its context", "the context of an owner ends", []patch{{
		"owner.go", "if o.ctx.Err() != nil {\n\t\treturn nil, o.contextEnded()\n\t}\n", "",
	}}},
	{"Close deadlocks: Release locks the owner, which waits for it", "an owner ends beside an acquire and a release",
		[]patch{knowsOwner, setsOwner, {
			"slot.go", "if s.owned {\n", "if s.owned {\n\t\ts.by.mu.Lock()\n\t\ts.by.mu.Unlock()\n",
		}}},
	{"an acquire deadlocks: Release locks the owner while it has locked the shard", "an owner of two keys ends",
		[]patch{knowsOwner, setsOwner, {
			"slot.go", "\ts.of.free(s.n)\n\tif s.owned {\n",
			"\tif s.owned {\n\t\ts.of.(interface{ locked(*Owner) }).locked(s.by)\n\t}\n\ts.of.free(s.n)\n\tif s.owned {\n",
		}, {
			"shard.go", "func (s *shard[K]) unpin",
			"func (e *entry[K]) locked(o *Owner) {\n\te.shard.mu.Lock()\n\to.mu.Lock()\n" +
				"\to.mu.Unlock()\n\te.shard.mu.Unlock()\n}\n\nfunc (s *shard[K]) unpin",
		}}},
}

// Texts of package semaphore that several bugs replace, and patches that several bugs need.
const (
	takes = "count := e.count.Load()\n\t\tif count == removed {\n\t\t\treturn 0, stale\n\t\t}\n" +
		"\t\tif count > int64(limit)-int64(n) {\n\t\t\treturn 0, full\n\t\t}\n" +
		"\t\tif e.count.CompareAndSwap(count, count+int64(n)) {\n\t\t\treturn int(count) + n, granted\n\t\t}\n"
	evicts         = "if e.pins > 0 || !e.count.CompareAndSwap(0, removed) {\n\t\treturn\n\t}\n"
	keepsUntilFree = "\t// If the handle were collected before lower, unpin would see a held entry and keep it forever.\n"
	keepsUntilRead = "\t// The handle pins the entry up to here, so the count was not removed.\n"
)

var (
	knowsOwner = patch{"slot.go", "\towned bool ", "\tby    *Owner\n\towned bool "}
	setsOwner  = patch{"owner.go", "&Slot{owned: true, ", "&Slot{by: o, owned: true, "}
)

var (
	wrong    = regexp.MustCompile(`wrong: (.*)`)
	replayed = regexp.MustCompile(`replay: -program '(.*)' -schedule (\S+)`)
)

// TestEveryPlantedBugIsFound plants each bug, wants a schedule that shows it, and replays the
// schedule.
func TestEveryPlantedBugIsFound(t *testing.T) {
	testmode.NeedLong(t, "it builds the code once for each bug; TestEverySchedule runs the programs on the code as it is")
	for _, p := range plantedBugs {
		t.Run(strings.ReplaceAll(p.bug, " ", "_"), func(t *testing.T) {
			t.Parallel()
			binary, dir := build(t, append(p.patches, knobs...))
			out, err := explore(t, binary, dir, "^"+p.program+"$", "")
			what, schedule := wrong.FindStringSubmatch(out), replayed.FindStringSubmatch(out)
			if err == nil || what == nil || schedule == nil {
				t.Fatalf("no schedule shows it:\n%s", out)
			}
			t.Log("\n" + out)
			again, _ := explore(t, binary, dir, schedule[1], schedule[2])
			if found := wrong.FindStringSubmatch(again); found == nil || found[1] != what[1] {
				t.Errorf("the replayed schedule shows something else:\n%s", again)
			}
		})
	}
}
