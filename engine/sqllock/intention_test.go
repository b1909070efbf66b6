package sqllock

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// Work on user/1 does not wait for work on user/2, and an exclusive claim of user waits
// for both. Their latches:
//
//	claim of user/1    shared: the root, user    exclusive: user/1
//	claim of user/2    shared: the root, user    exclusive: user/2
//	claim of user      shared: the root          exclusive: user
//
// So the first two go on side by side, statement by statement in any order, and the third comes
// before, between or after them, but never while one is under way: it reads committed rows, and no
// transaction that it has not seen will grant a claim below.
//
// This test goes through every order of the statements of all three. An order is written like
// these, where each word is a statement and - stands for waiting for a latch:
//
//	user/1: latch read commit - - - - - -        user/1 and user/2 are held, and user waits for both
//	user/2: - latch - read commit - - - -
//	user:   - - - - - latch read commit
//
//	user:   latch read commit - - -              user is held, and the others wait for it
//	user/1: - - - latch read commit
//
// Whatever the order, the transaction that latches first is first in the queue.
func TestExclusiveAboveOthers(t *testing.T) {
	seen := make(map[string]int) // outcomes, and how many orders lead to them
	sideBySide := 0
	orders, err := everyOrder(func(choose func(int) int) error {
		m := newMemory()
		m.now = beginning
		outcome, told, err := claimAtOnce(m, []lockkeeper.Path{"user/1", "user/2", "user"}, choose)
		if err != nil {
			return err
		}
		if m.wrong != nil {
			return m.wrong
		}
		seen[outcome]++
		if overlap(told, "user/1", "user/2") {
			sideBySide++
		}
		for _, child := range []string{"user/1", "user/2"} {
			if overlap(told, child, "user") {
				return fmt.Errorf("user and %s are under way at once:\n%s", child, strings.Join(told, "\n"))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"user held, user/1 waiting, user/2 waiting", // user latched first
		"user waiting, user/1 held, user/2 held",    // it latched last
		"user waiting, user/1 held, user/2 waiting", // user/1, user, user/2
		"user waiting, user/1 waiting, user/2 held", // user/2, user, user/1
	}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
		t.Errorf("after %d orders the outcomes are\n%s\nand should be\n%s", orders, strings.Join(got, "\n"),
			strings.Join(want, "\n"))
	}
	if sideBySide == 0 {
		t.Error("user/1 and user/2 are never under way at once")
	}
	t.Logf("%d orders, in %d of which user/1 and user/2 are under way at once; outcomes: %v", orders, sideBySide, seen)
}

// claimAtOnce makes exclusive claims at once, each by a process of its own. It returns their
// states, in the order of their paths, and the statements in their order.
func claimAtOnce(m *memory, paths []lockkeeper.Path, choose func(int) int) (outcome string, told []string, err error) {
	r := &race{rows: m, choose: choose, turns: []string{"latch", "claims", "commit"}}
	var wait sync.WaitGroup
	for _, path := range paths {
		e := stillEngine(m, string(path), usual)
		key, err := attachAlone(e, string(path))
		if err != nil {
			return "", nil, err
		}
		wait.Go(func() {
			_, _ = e.Claim(e.closing, key, lockkeeper.Want{
				ID:      1,
				Wait:    lockkeeper.Forever,
				Targets: []lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}},
			})
		})
		jobs := e.work.take()
		r.add(string(path), func() { e.work.finish(jobs, e.runJobs(jobs)) })
	}
	if err := r.run(); err != nil {
		return "", nil, err
	}
	wait.Wait()
	if err := m.sound(); err != nil {
		return "", nil, err
	}
	var states []string
	for _, ref := range slices.SortedFunc(maps.Keys(m.tables.claims), compareRefs) {
		states = append(states, fmt.Sprintf("%s %s", ref.Session, m.tables.claims[ref].ClaimRecord.State))
	}
	return strings.Join(states, ", "), r.told, m.checked()
}

// attachAlone attaches a session when nothing else happens.
func attachAlone(e *Engine, id string) (lockkeeper.Key, error) {
	var lease lockkeeper.Lease
	var err error
	var wait sync.WaitGroup
	wait.Go(func() { lease, err = e.Attach(e.closing, lockkeeper.Session{ID: id, TTL: time.Minute}, nil) })
	jobs := e.work.take()
	e.work.finish(jobs, e.runJobs(jobs))
	wait.Wait()
	return lease.Key, err
}

// overlap reports whether two transactions were under way at once: both had latches.
func overlap(told []string, one, other string) bool {
	latched := make(map[string]bool)
	for _, step := range told {
		name, what, _ := strings.Cut(step, " ")
		latched[name] = what != "commit" && (latched[name] || what == "latch")
		if latched[one] && latched[other] {
			return true
		}
	}
	return false
}

// checked holds all rows against the invariants of a table.
func (m *memory) checked() error {
	snap := table.Snapshot{Counters: table.Counters{
		Now:     m.now,
		Fences:  m.numbers + numbersAtOnce,
		Tickets: m.numbers + numbersAtOnce,
		Epochs:  m.numbers + numbersAtOnce,
		Changes: m.numbers + numbersAtOnce,
	}}
	for _, id := range slices.Sorted(maps.Keys(m.tables.sessions)) {
		if s := m.tables.sessions[id]; !s.Closed {
			snap.Sessions = append(snap.Sessions, s.SessionRecord)
		}
	}
	for _, ref := range slices.SortedFunc(maps.Keys(m.tables.claims), compareRefs) {
		snap.Claims = append(snap.Claims, m.tables.claims[ref].ClaimRecord)
	}
	_, err := table.Restore(snap)
	return err
}
