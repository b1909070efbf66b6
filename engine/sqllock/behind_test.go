package sqllock

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/story"
	"github.com/lockkeeper/lockkeeper/table"
)

// The engine checks one claim of each wait class of a queue, such as the claim with a larger limit
// behind thousands that can't be granted (R7).
func TestChecksOneOfEachWaitClass(t *testing.T) {
	l := newLocal()
	l.attach("a", 1, time.Minute, nil)
	note := func(id uint64, target lockkeeper.Target) lockkeeper.Ref {
		st := lockkeeper.Status{
			Ref:    lockkeeper.Ref{Session: "a", ID: id},
			Change: id,
			State:  lockkeeper.Waiting,
			Left:   lockkeeper.Forever,
			Grants: []lockkeeper.Grant{{Target: target}},
		}
		l.note(&st)
		return st.Ref
	}
	for id := range uint64(1000) {
		note(id+10, lockkeeper.Target{Path: "a", Mode: lockkeeper.ModePermits, Units: 1 + int(id%2), Limit: 2})
	}
	larger := note(1, lockkeeper.Target{Path: "a", Mode: lockkeeper.ModePermits, Units: 1, Limit: 3})
	refs, _ := l.due(time.Now().Add(time.Hour))
	if len(refs) != 2 || !slices.Contains(refs, larger) {
		t.Errorf("looks at %v, want %s and one of the others", refs, larger)
	}
}

// onlyWhenTold keeps these engines from checking by themselves whether a claim can be granted.
func onlyWhenTold(engines ...*Engine) {
	for _, e := range engines {
		e.local.mu.Lock()
		e.local.checkAfter = time.Hour
		e.local.mu.Unlock()
	}
}

// If all claims in the prefix of a long queue end at once, a further transaction checks the claims
// beyond: here one session has the whole prefix, and leaves.
func TestQueuePrefixLeaves(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		e, other := openEngine(t, url), openEngine(t, url)
		onlyWhenTold(e, other)
		many, next := join(t, e, "many", cutTTL), join(t, other, "next", cutTTL)
		for id := range uint64(usual.prefix + 2) {
			w := exclusive(1+id, lockkeeper.Forever, "a")
			if st, err := many.Claim(bounded(t), many.key, w); err != nil {
				t.Fatal(st, err)
			}
		}
		next.claim(exclusive(1, lockkeeper.Forever, "a"), lockkeeper.Waiting)
		many.end(lockkeeper.Ending{Kind: lockkeeper.Leave})
		next.await(1, lockkeeper.Held)
	})
}

// Rows of claims in the prefix of a long queue are removed by hand, but not the rows of their
// targets: no claim waits for them then, and the waiters behind keep their order.
func TestQueuePrefixRemovedByHand(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		e := openEngine(t, url)
		holder, db := join(t, e, "holder", cutTTL), opened(t, url)
		holder.claim(exclusive(1, 0, "a"), lockkeeper.Held)
		gone := join(t, e, "gone", cutTTL)
		for id := range uint64(usual.shortPrefix) {
			gone.claim(exclusive(1+id, lockkeeper.Forever, "a"), lockkeeper.Waiting)
		}
		line := make([]*member, usual.prefix+2)
		for i := range line {
			line[i] = join(t, e, fmt.Sprint("in-line-", i), cutTTL)
			line[i].claim(exclusive(1, lockkeeper.Forever, "a"), lockkeeper.Waiting)
		}
		db.mustExec(t, "DELETE FROM {claims} WHERE session = 'gone'")
		holder.release(1)
		for _, m := range line[:5] {
			m.await(1, lockkeeper.Held)
			if held := listedHeld(t, db); len(held) != 1 || held[0] != m.key.Session+".1" {
				t.Errorf("held by %v, want %s.1", held, m.key.Session)
			}
			m.release(1)
		}
	})
}

// A stealing claim beyond the prefix asks no holder, not even for a moment, while the claims ahead
// of it are not all read: this one would ask without effect (R10).
func TestThiefBeyondThePrefix(t *testing.T) {
	const told = `attach b ttl=30s
attach c ttl=1m
claim b 1 exclusive t
claim b 5 shared t priority=1
claim c 2 permits t 2/2 priority=2 steal
claim c 4 exclusive t priority=1
claim c 6 shared t/u/v priority=1 steal
at 23s claim c 7 exclusive t priority=2`
	var all []table.Command
	for line := range strings.Lines(told) {
		c, err := story.Parse(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	v := variant{bounds: bounds{prefix: 2, shortPrefix: 1, mostClaims: 3, latches: usual.latches}}
	for seed := range uint64(8) {
		if diff := v.difference(seed, all); diff != "" {
			t.Fatal(diff)
		}
	}
}
