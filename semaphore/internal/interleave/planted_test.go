package interleave_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// planted is one bug in canal that some schedule of a program must show.
type planted struct {
	bug     string // what it does to a user
	program string
	patch
}

var plantedBugs = []planted{
	{
		"a key is taken away though somebody has just taken a slot of it", "a key goes and comes again",
		patch{"shard.go", "if e.pins > 0 || !e.count.CompareAndSwap(0, gone) {\n\t\treturn\n\t}\n",
			"if e.pins > 0 || e.count.Load() != 0 {\n\t\treturn\n\t}\n\te.count.Store(gone)\n"},
	},
	{
		"two goroutines make a key that both did not find", "a key comes",
		patch{"shard.go", "if e := s.look(hash, key); e != nil {\n\t\tordinal, answer",
			"if e := s.look(hash, key); e != nil && n < 0 {\n\t\tordinal, answer"},
	},
	{
		"a slot is taken of a key that was just taken away", "a key goes and comes again",
		patch{"entry.go", "if count == gone {", "if count < gone {"},
	},
	{
		"who finds a key gone is told that it is full", "an idle key makes room for another one",
		patch{"entry.go", "return 0, left\n", "return 0, full\n"},
	},
	{
		"two goroutines see one free slot, and both take it", "four goroutines at one key",
		patch{"entry.go", "if e.count.CompareAndSwap(count, count+int64(n)) {", "if e.count.Store(count + int64(n)); true {"},
	},
	{
		"a release is lost beside an acquire", "views of 1, 2 and 3 of one key",
		patch{"entry.go", "count := e.count.Add(-int64(n))", "count := e.count.Load() - int64(n)\n\te.count.Store(count)"},
	},
	{
		"a slot that two release is freed twice", "two Releases",
		patch{"slot.go", "if !s.state.CompareAndSwap(held, freeing) {",
			"if held := s.state.Load() == held; held {\n\t\ts.state.Store(freeing)\n\t} else {"},
	},
	{
		"the end of an owner frees what is being released", "the owner ends while slots are acquired and released",
		patch{"slot.go", "if s.state.CompareAndSwap(held, ending) {",
			"if held := s.state.Load() == held; held {\n\t\ts.state.Store(ending)"},
	},
	{
		"Close returns while a slot is still being released", "the owner ends while slots are acquired and released",
		patch{"slot.go", "for s.state.Load() == freeing {", "for s.state.Load() == freeing+4 {"},
	},
	{
		"Close returns while a slot is still being released, since it says too early that it is",
		"the owner ends while slots are acquired and released",
		patch{"slot.go", "s.of.free(s.n)\n\tif s.owned {\n\t\ts.state.Store(released)\n\t}\n",
			"if s.owned {\n\t\ts.state.Store(released)\n\t}\n\ts.of.free(s.n)\n"},
	},
	{
		"Close returns while a slot is still being released, since the owner's list forgot it",
		"the list of an owner is cleaned",
		patch{"slot.go", "return state == released || state == ended", "return state != held"},
	},
	{
		"Close waits for ever for a slot that was released", "the owner ends while slots are acquired and released",
		patch{"slot.go", "s.state.Store(released)", "s.state.Store(freeing)"},
	},
	{
		"Close returns while the end of the context is still freeing slots", "the context of an owner ends",
		patch{"owner.go", "if o.unwatch != nil {\n\t\to.unwatch()\n\t}",
			"if o.unwatch != nil && !o.unwatch() {\n\t\treturn\n\t}"},
	},
	{
		"an owner gets a slot that its end does not see", "the owner ends while slots are acquired and released",
		patch{"owner.go", "o.mu.Lock()\n\tdefer o.mu.Unlock()\n\tif o.ended {", "if o.ended {"},
	},
	{
		"an owner gets slots after its Close", "the owner ends while slots are acquired and released",
		patch{"owner.go", "if o.ended {", "if o.ended && false {"},
	},
	{
		"a key is not found any more, since one before it went", "a key goes that is ahead of another one",
		patch{"shard.go", "if (i-next.hash)&mask >= (i-hole)&mask {", "if (i-next.hash)&mask > mask {"},
	},
	{
		"a key moves up out of the reach of who looks for it", "a key goes that is ahead of others",
		patch{"shard.go", "if (i-next.hash)&mask >= (i-hole)&mask {", "if (i-next.hash)&mask <= mask {"},
	},
	{
		"a table is looked at before it is filled, under the lock too", "the table grows under a look",
		patch{"shard.go", "\ts.cells.Store(&cells)\n}\n\n// place",
			"\tempty := make([]cell[K], length)\n\ts.cells.Store(&empty)\n}\n\n// place"},
	},
	{
		"a new key comes into a table that nobody looks into any more", "the table grows under a look",
		patch{"shard.go", "if size := s.size.Add(1); size > int64(len(*s.cells.Load())/2) {\n\t\ts.resize(2 * " +
			"len(*s.cells.Load()))\n\t}\n\tplace(*s.cells.Load(), e)",
			"cells := *s.cells.Load()\n\tif size := s.size.Add(1); size > int64(len(cells)/2) {\n\t\ts.resize(2 * " +
				"len(cells))\n\t}\n\tplace(cells, e)"},
	},
	{
		"a key goes though a handle has it", "a handle beside its key, which would go",
		patch{"shard.go", "if e.pins > 0 || !e", "if !e"},
	},
	{
		"a key goes with the first of its handles", "one of two handles ends",
		patch{"shard.go", "e.pins--\n", "e.pins = 0\n"},
	},
	{
		"a key stays for ever, since its handle ends before the handle's last slot is free",
		"two handles end with their slots",
		patch{"handle.go", "\t// A handle that went before would find the entry in use, and leave it " +
			"behind.\n\truntime.KeepAlive(h)\n", ""},
	},
	{
		"a key goes while the last call of its handle looks at it", "a handle ends with a look",
		patch{"handle.go", "\t// Until here the handle kept the entry from going, and its count from being " +
			"gone.\n\truntime.KeepAlive(h)\n", ""},
	},
	{
		"a handle is made of a key that is just being taken away", "a handle comes while its key goes",
		patch{"shard.go", "s.mu.Lock()\n\tdefer s.mu.Unlock()\n\te := s.look(hash, key)", "e := s.look(hash, key)"},
	},
	{
		"keys that nobody uses stay for ever", "no more idle keys than may be",
		patch{"entry.go", "== 0 && e.home.crowded() {", "== 0 && e.home == nil {"},
	},
	{
		"All yields a key of which nothing is in use", "All and Held beside changes",
		patch{"shard.go", "all = append(all, usage[K]{e.key, int(n)})",
			"all = append(all, usage[K]{e.key, int(e.count.Load())})"},
	},
	{
		"the end of a handle waits for itself", "a handle ends while its key is used",
		patch{"shard.go", "if s.crowded() {\n\t\ts.evict(e)", "if s.crowded() {\n\t\ts.drop(e)"},
	},
}

var (
	wrong    = regexp.MustCompile(`wrong: (.*)`)
	replayed = regexp.MustCompile(`replay: -program '(.*)' -schedule (\S+)`)
)

// TestEveryPlantedBugIsFound plants each bug, and wants a schedule that shows it,
// and shows it again when it is replayed.
func TestEveryPlantedBugIsFound(t *testing.T) {
	testmode.NeedLong(t, "it builds the code once for each bug")
	for _, p := range plantedBugs {
		t.Run(strings.ReplaceAll(p.bug, " ", "_"), func(t *testing.T) {
			t.Parallel()
			binary, dir := build(t, append([]patch{p.patch}, knobs...))
			out, err := explore(t, binary, dir, "^"+p.program+"$", "")
			what, schedule := wrong.FindStringSubmatch(out), replayed.FindStringSubmatch(out)
			if err == nil || what == nil || schedule == nil {
				t.Fatalf("it is not found:\n%s", out)
			}
			t.Log("\n" + out)
			again, _ := explore(t, binary, dir, schedule[1], schedule[2])
			if found := wrong.FindStringSubmatch(again); found == nil || found[1] != what[1] {
				t.Errorf("its schedule, replayed, shows something else:\n%s", again)
			}
		})
	}
}
