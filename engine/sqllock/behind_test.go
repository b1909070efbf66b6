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

// Of a line somebody is looked at of each kind that may go before others, such as the one with
// a larger limit behind thousands who can't go (R7).
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

// onlyWhenTold has these engines not look by themselves whether a claim can go.
func onlyWhenTold(engines ...*Engine) {
	for _, e := range engines {
		e.local.mu.Lock()
		e.local.checkAfter = time.Hour
		e.local.mu.Unlock()
	}
}

// When all who are read of a long line end at once, who stands behind them is looked at: here
// they have one session, which leaves.
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

// Rows of claims at the head of a long line are removed by hand, and not those of their targets:
// then nobody waits for them, and the waiters behind keep their order.
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

// A thief that stands behind the head of a line asks nobody while it is not known who is ahead
// of it, not even for a moment: this one would ask without effect (R10).
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
