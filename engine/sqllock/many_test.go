package sqllock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// many is more than a transaction has numbers in a block.
const many = numbersAtOnce + 76

// claimMany claims that many paths, each by itself.
func (m *member) claimMany(wait time.Duration, paths int) {
	m.t.Helper()
	var calls sync.WaitGroup
	for i := range paths {
		calls.Go(func() {
			want := exclusive(uint64(i+1), wait, fmt.Sprint("p", i))
			if _, err := m.Claim(bounded(m.t), m.key, want); err != nil {
				m.t.Error(err)
			}
		})
	}
	calls.Wait()
}

// A transaction may grant more claims than there are numbers in a block: the end of a freeze of everything, and that
// of a session whose holds many wait for.
func TestManyGrantsAtOnce(t *testing.T) {
	overMostKinds(t, func(t *testing.T, k kind) {
		e := openEngine(t, k.shared(t).Database(t))
		m, waiters := join(t, e, "holder", 5*time.Minute), join(t, e, "waiters", 5*time.Minute)
		m.claimMany(0, many)
		waiters.claimMany(lockkeeper.Forever, many)
		if err := m.End(bounded(t), m.key, lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
			t.Errorf("the holder of %d paths leaves: %v", many, err)
		}
		fences := make(map[uint64]bool)
		for st, err := range e.List(bounded(t), lockkeeper.Query{Brief: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if st.State == lockkeeper.Held {
				fences[st.Fence] = true
			}
		}
		if len(fences) != many {
			t.Errorf("%d holds with fences of their own, want %d", len(fences), many)
		}
	})
}

// A session of many holds looks for some of their rows at each renewal, for all of them in turns, and for all at once
// when one is missing.
func TestLostRowsOfManyHolds(t *testing.T) {
	url := testdb.SharedPostgres(t).Database(t)
	m := join(t, openEngine(t, url), "m", 5*time.Minute)
	const holds = 5 * mostSampled
	m.claimMany(0, holds)
	opened(t, url).mustExec(t, `DELETE FROM {targets}`, `DELETE FROM {claims}`)
	for range 2 {
		if _, err := m.Renew(bounded(t), m.key); err != nil {
			t.Fatal(err)
		}
	}
	for id := range uint64(holds) {
		m.await(id+1, lockkeeper.Ended)
	}
}

func TestEachClaimHasItsTurn(t *testing.T) {
	for _, count := range []int{0, 1, 4, 5, 6, 12} {
		own := make(map[lockkeeper.Ref]bool)
		for id := range count {
			own[lockkeeper.Ref{Session: "s", ID: uint64(id)}] = false
		}
		const most = 5
		for round := range 10 {
			seen := make(map[lockkeeper.Ref]bool)
			for range 2 * max(1, (count+most-1)/most) {
				chosen := nextTurn(own, most)
				if len(chosen) != min(most, count) {
					t.Errorf("of %d claims: %d, want %d", count, len(chosen), min(most, count))
				}
				for _, ref := range chosen {
					own[ref], seen[ref] = true, true
				}
				endTurn(own)
			}
			if len(seen) != count {
				t.Errorf("round %d: %d of %d claims had a turn", round, len(seen), count)
			}
		}
	}
}

// A commit that waits for a synchronous replica goes on waiting when this process gives its answer up: nobody is told
// of a grant that no replica has.
func TestCommitWaitsForTheReplica(t *testing.T) {
	t.Parallel()
	url := testdb.Postgres(t).Database(t)
	holder := join(t, openEngine(t, url), "holder", time.Minute)
	waiter := join(t, openEngine(t, url), "waiter", time.Minute)
	holder.claim(exclusive(1, 0, "a"), lockkeeper.Held)
	waiter.claim(exclusive(1, lockkeeper.Forever, "a"), lockkeeper.Waiting)
	db := opened(t, url)
	db.mustExec(t, `ALTER SYSTEM SET synchronous_standby_names = 'missing'`, `SELECT pg_reload_conf()`)
	<-time.After(time.Second) // until the processes of all connections have read it
	ctx, cancel := context.WithTimeout(t.Context(), attemptBound+2*time.Second)
	defer cancel()
	err := holder.End(ctx, holder.key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1})
	if !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("a release without a replica: %v", err)
	}
	for checked := time.After(2 * checkEvery); checked != nil; {
		select {
		case <-checked:
			checked = nil
		case <-waiter.more:
		}
		waiter.mu.Lock()
		told := slices.Clone(waiter.told[1])
		waiter.mu.Unlock()
		if slices.ContainsFunc(told, func(st lockkeeper.Status) bool { return st.State == lockkeeper.Held }) {
			t.Fatalf("a grant that no replica has was told: %+v", told)
		}
	}
	db.mustExec(t, `ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`)
	waiter.await(1, lockkeeper.Held)
}
