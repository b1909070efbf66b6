package canalsteps

import (
	"strings"
	"testing"
	"time"
)

// bug is planted into a scope, in which a rule must be seen to break.
type bug struct {
	name  string
	rule  rule
	plant func(*algorithm)
	scope scope
}

// replaced plants other steps in the place of some.
func replaced(all map[pc]func(*turn)) func(*algorithm) {
	return func(a *algorithm) {
		for at, run := range all {
			a[at].run = run
			if a[at].name == "" {
				a[at].name = "(planted)"
			}
		}
	}
}

var bugs = []bug{
	{"buckets: a bucket below 0 is repaired too late", neverOver, plantBuckets, scope{
		maxPer: 1, views: 2, ignored: ignoring(neverUnder, rightOrdinal, rightCount),
		programs: [][]call{
			{take(1, "a", 1, 1), give(1)},
			{take(2, "a", 1, 2)},
			{take(3, "a", 1, 2)},
			{take(4, "a", 1, 2)},
		}}},
	{"buckets: a release that gives up takes out 2", neverOver, plantBuckets, scope{
		maxPer: 2, views: 1, ignored: ignoring(neverUnder, rightOrdinal, rightCount),
		programs: [][]call{
			{take(1, "a", 1, 2), take(2, "a", 1, 2), give(1), take(6, "a", 1, 2), take(7, "a", 1, 2)},
			{take(3, "a", 1, 2)},
			{take(4, "a", 1, 2)},
			{take(5, "a", 1, 2)},
		}}},
	{"buckets: full while a release is between two steps", neverUnder, plantBuckets, scope{
		maxPer: 1, views: 1, ignored: ignoring(rightOrdinal, rightCount),
		programs: [][]call{
			{take(1, "a", 1, 1), give(1)},
			{take(2, "a", 1, 1)},
			{take(3, "a", 1, 1)},
		}}},
	{"a mark at the limit stays for ever", nothingLeft, plantMarker, scope{
		ignored: ignoring(neverUnder, neverOver, rightOrdinal, rightCount), programs: timeline(true)}},
	{"a mark at the limit keeps out who has room", neverUnder, plantMarker, scope{
		ignored: ignoring(neverOver, rightOrdinal, rightCount), programs: timeline(true)}},
	{"the owner's end frees whatever the state", freedOnce, replaced(map[pc]func(*turn){endSwap: endFreesAnyway}), scope{
		programs: [][]call{{take(1, "a", 1, 1).as(1), give(1)}, {closes(1)}}}},
	{"release marks the slot after it has freed it", freedOnce,
		replaced(map[pc]func(*turn){releaseSwap: releaseFreesFirst, planted1: releaseMarks}), scope{
			programs: [][]call{{take(1, "a", 1, 1), give(1)}, {give(1)}}}},
	{"the slot is noted with the owner after its lock is let go", endFreesAll, replaced(map[pc]func(*turn){
		ownLock:  ownUnlocked,
		ownNote:  noteAfterwards,
		planted1: noteAlone,
	}), scope{
		ignored:  ignoring(nothingAfterEnd),
		programs: [][]call{{take(1, "a", 1, 1).as(1)}, {closes(1)}}}},
	{"an owner ends between the look at it and the grant", nothingAfterEnd, replaced(map[pc]func(*turn){
		ownLock:  ownUnlocked,
		ownNote:  noteAfterwards,
		planted1: noteAlone,
	}), scope{
		programs: [][]call{{take(1, "a", 1, 1).as(1)}, {closes(1)}}}},
	{"a slot of a dead owner is lost for ever", nothingLeft, replaced(map[pc]func(*turn){
		ownLock:  ownUnlocked,
		ownNote:  noteAfterwards,
		planted1: noteAlone,
	}), scope{
		ignored:  ignoring(nothingAfterEnd, endFreesAll),
		programs: [][]call{{take(1, "a", 1, 1).as(1)}, {closes(1)}}}},
	{"Close does not wait for a release", endFreesAll, replaced(map[pc]func(*turn){endWait: endGoesOn}), scope{
		programs: [][]call{{take(1, "a", 1, 1).as(1), give(1)}, {closes(1), take(2, "a", 1, 1), give(2)}}}},
	{"take compares and adds in two steps", neverOver, replaced(map[pc]func(*turn){takeSwap: takeAdds}), scope{
		ignored:  ignoring(rightOrdinal, rightCount),
		programs: [][]call{{take(1, "a", 1, 2)}, {take(2, "a", 1, 2)}, {take(3, "a", 1, 2)}}}},
	{"take adds first, and takes back what is too much", neverUnder,
		replaced(map[pc]func(*turn){takeLoad: addFirst, planted1: takeBack}), scope{
			ignored:  ignoring(rightCount, rightOrdinal),
			programs: [][]call{{take(1, "a", 1, 1), give(1)}, {take(2, "a", 1, 1), give(2)}, {take(3, "a", 1, 1), give(3)}}}},
	{"take adds first, takes back, and does not give up", noCircle,
		replaced(map[pc]func(*turn){takeLoad: addFirst, planted1: takeBackAndRetry}), scope{
			stay: true, ignored: ignoring(rightCount, rightOrdinal, neverUnder),
			programs: [][]call{{take(1, "a", 1, 1)}, {take(2, "a", 1, 1)}, {take(3, "a", 1, 1)}}}},
	{"take takes slots of an entry that is gone", neverOver, replaced(map[pc]func(*turn){takeLoad: takeFromGone}), scope{
		ignored:  ignoring(rightCount, rightOrdinal, oneLiveEntry),
		programs: [][]call{{take(1, "a", 1, 1), give(1)}, {take(2, "a", 1, 1)}, {take(3, "a", 1, 1)}}}},
	{"the ordinal is looked up after the grant", rightOrdinal,
		replaced(map[pc]func(*turn){takeSwap: takeSwapTellsLater, planted1: tellLater}), scope{
			programs: [][]call{{take(1, "a", 1, 3)}, {take(2, "a", 1, 3)}, {take(3, "a", 1, 3)}}}},
	{"an entry is dropped though it is used again", neverOver, replaced(map[pc]func(*turn){evictSwap: evictAtOnce}), scope{
		ignored:  ignoring(rightCount, oneLiveEntry),
		programs: [][]call{{take(1, "a", 1, 1), give(1)}, {take(2, "a", 1, 1)}, {take(3, "a", 1, 1)}}}},
	{"an entry is dropped without a mark that it is gone", neverOver,
		replaced(map[pc]func(*turn){evictSwap: evictUnmarked}), scope{
			ignored:  ignoring(rightCount, oneLiveEntry),
			programs: [][]call{{take(1, "a", 1, 1), give(1)}, {take(2, "a", 1, 1)}, {take(3, "a", 1, 1)}}}},
	{"an entry is marked as gone in two steps", rightCount,
		replaced(map[pc]func(*turn){evictSwap: evictInTwo, planted1: markGone}), scope{
			programs: [][]call{{take(1, "a", 1, 1), give(1)}, {take(2, "a", 1, 1), give(2)}}}},
	{"an entry is marked as gone and stays in the table", rightTable,
		replaced(map[pc]func(*turn){dropLock: dropMarked, planted1: dropLater}), scope{
			programs: [][]call{{take(1, "a", 1, 1), give(1)}}}},
	{"a hole stays before an entry that belongs before it", rightTable,
		replaced(map[pc]func(*turn){removeNext: removeWithoutMoving}), scope{
			smallest: 4, programs: [][]call{{take(1, "a", 1, 1), give(1)}, {take(2, "b", 1, 1)}}}},
	{"a hole before an entry makes a second one", neverOver, replaced(map[pc]func(*turn){removeNext: removeWithoutMoving}),
		scope{
			smallest: 4, ignored: ignoring(rightTable, oneLiveEntry, rightCount),
			programs: [][]call{{take(1, "a", 1, 1), give(1)}, {take(2, "b", 1, 1), take(3, "b", 1, 1)}}}},
	{"a key is made without looking again under the lock", neverOver,
		replaced(map[pc]func(*turn){enterLock: enterBlindly}), scope{
			smallest: 4, ignored: ignoring(rightCount, rightTable, oneLiveEntry),
			programs: [][]call{{take(1, "a", 1, 1)}, {take(2, "a", 1, 1)}}}},
	{"two make a key at once", oneLiveEntry, replaced(map[pc]func(*turn){enterLock: enterBlindly}), scope{
		smallest: 4, programs: [][]call{{take(1, "a", 1, 2)}, {take(2, "a", 1, 2)}}, ignored: ignoring(rightOrdinal)}},
	{"who is refused leaves a key behind", nothingLeft,
		replaced(map[pc]func(*turn){lookCell: lookRefused, planted1: enterRefused}), scope{
			programs: [][]call{{take(1, "a", 1, 0)}}}},
	{"the last release leaves its key behind", nothingLeft, replaced(map[pc]func(*turn){freeAdd: freeAndStay}), scope{
		programs: [][]call{{take(1, "a", 1, 1), give(1)}}}},
	{"the last handle leaves its key behind", nothingLeft, replaced(map[pc]func(*turn){unpinLock: unpinAndStay}), scope{
		programs: [][]call{{pins(1, "a"), letsGo(1), cleansUp(1)}}}},
	{"a handle does not keep its entry", neverUnder, replaced(map[pc]func(*turn){evict: evictPinned}), scope{
		programs: [][]call{{pins(1, "a"), take(1, "a", 1, 1).by(1), give(1)}, {take(2, "a", 1, 1), give(2)}}}},
	{"a handle goes while its entry is asked for slots", neverUnder,
		replaced(map[pc]func(*turn){acquireFind: handleWithoutKeepAlive}), scope{
			programs: [][]call{{pins(1, "a"), take(1, "a", 1, 1).by(1), give(1)}, {cleansUp(1)}}}},
	{"a handle goes while a slot of it is held", nothingLeft, replaced(map[pc]func(*turn){unpinLock: unpinBesideSlots}),
		scope{
			programs: [][]call{{pins(1, "a"), take(1, "a", 1, 1).by(1), letsGo(1), give(1)}, {cleansUp(1)}}}},
	{"a handle goes while its entry is looked at", toldTruth,
		replaced(map[pc]func(*turn){handleHeld: heldWithoutKeepAlive, planted1: heldLater}), scope{
			programs: [][]call{{pins(1, "a"), heldBy(1, "a")}, {cleansUp(1)}}}},
	{"All looks twice at a count", toldTruth, replaced(map[pc]func(*turn){allLoad: allLooksTwice, planted1: secondLook}),
		scope{
			programs: [][]call{{take(1, "a", 1, 1), give(1)}, {walks()}}}},
	{"the context is not asked before the grant", nothingAfterEnd,
		replaced(map[pc]func(*turn){ownContext: ownWithoutContext}), scope{
			programs: [][]call{{take(1, "a", 1, 1).as(1)}, {contextEnds(1)}}}},
	{"note forgets slots that are still being released", endFreesAll,
		replaced(map[pc]func(*turn){noteOver: noteDropsFreeing}), scope{
			programs: [][]call{{take(1, "a", 1, 2).as(1), take(2, "a", 1, 2).as(1), closes(1)}, {give(1)}}}},
	{"an owner that ends frees its slots outside its lock", endFreesAll, replaced(map[pc]func(*turn){
		endLock:   endTakesList,
		endNext:   endNextOfList,
		endUnlock: endWithoutLock,
	}), scope{
		programs: [][]call{{take(1, "a", 1, 1).as(1), closes(1)}, {closes(1)}}}},
	{"a release locks the owner that waits for it", nobodyStuck, func(a *algorithm) {
		a[releaseFreed] = visible("Release", unnote)
	}, scope{
		programs: [][]call{{take(1, "a", 1, 1).as(1), give(1)}, {closes(1)}}}},
	{"a release locks the owner inside the shard", lockOrder, replaced(map[pc]func(*turn){dropUnlock: unnoteInShard}),
		scope{
			programs: [][]call{{take(1, "a", 1, 1).as(1), give(1)}}}},
}

// TestPlantedBugs plants each bug and wants it found, by the rule that it breaks.
// With -v it tells a shortest schedule of each.
func TestPlantedBugs(t *testing.T) {
	broken := ruleSet(0)
	for _, b := range bugs {
		broken |= ignoring(b.rule)
		t.Run(b.name, func(t *testing.T) {
			sc := b.scope
			sc.name, sc.plant = b.name, b.plant
			sc = sc.sized()
			if b.rule != nothingLeft {
				sc.ignored |= ignoring(nothingLeft)
			}
			start := time.Now()
			x := explore(sc)
			if x.fault.text == "" {
				t.Fatalf("not found in %d states", len(x.states.values))
			}
			story := x.story()
			if x.fault.rule != b.rule {
				t.Errorf("found by %q, want %q", x.fault.rule, b.rule)
			}
			t.Logf("%d states, %d ms\n%s", len(x.states.values), time.Since(start).Milliseconds(),
				strings.TrimSuffix(story, "\n"))
		})
	}
	for r := range rules {
		if broken&ignoring(r) == 0 {
			t.Errorf("no bug breaks the rule %q: plant one, else nobody knows whether it is looked at", r)
		}
	}
}
