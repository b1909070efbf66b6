package sqllock

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// idleAtWork is how long a transaction of a test may be at work.
const idleAtWork = 20 * time.Second

// atWork has do run while a transaction of another process is at work at a path: it has
// latched that, and has not come to its end.
func atWork(t *testing.T, url string, path lockkeeper.Path, do func()) {
	t.Helper()
	e := openEngine(t, url)
	s := newScope(usual)
	s.add([]lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}})
	err := e.dialect.with(bounded(t), e.db.pool, func(l link) error {
		statements := append(e.dialect.begin(patience{latchPatience, idleAtWork}), e.dialect.latch(s.latches())...)
		if err := l.send(bounded(t), statements); err != nil {
			return err
		}
		do()
		return l.send(bounded(t), []statement{e.dialect.rollback()})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// later makes a claim, and returns a channel that has its answer when there is one.
func later(m *member, w lockkeeper.Want) <-chan lockkeeper.Status {
	answer := make(chan lockkeeper.Status, 1)
	ctx := bounded(m.t)
	go func() {
		st, err := m.Claim(ctx, m.key, w)
		if err != nil {
			m.t.Errorf("%s claims %v: %v", m.key.Session, w.Targets, err)
		}
		answer <- st
	}()
	return answer
}

// answered is the state that a claim has when it is answered.
func answered(t *testing.T, answer <-chan lockkeeper.Status) lockkeeper.State {
	t.Helper()
	select {
	case st := <-answer:
		return st.State
	case <-time.After(longest):
		t.Fatal("a claim was not answered")
		return 0
	}
}

// unanswered: nothing comes for as long as it took other claims to be answered, many times over.
func unanswered(t *testing.T, answer <-chan lockkeeper.Status, what string) {
	t.Helper()
	select {
	case st := <-answer:
		t.Errorf("%s was answered with %v while somebody was at work there", what, st.State)
	case <-time.After(300 * time.Millisecond):
	}
}

// While a transaction is at work at one path, claims of paths beside it and of other trees
// come and go.
func TestWorkBelowGoesOn(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		m := join(t, openEngine(t, url), "m", time.Minute)
		atWork(t, url, "router1/snmp", func() {
			m.claim(exclusive(1, 0, "router1/config"), lockkeeper.Held)
			m.claim(exclusive(2, 0, "router2/snmp"), lockkeeper.Held)
			m.release(1)
		})
	})
}

// A claim of the path above begins when the transactions below have ended, and reads their results.
// A later claim below reads it, and waits behind it.
func TestClaimAboveWaitsForWork(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		one, all, late := join(t, openEngine(t, url), "one", time.Minute), join(t, openEngine(t, url), "all",
			time.Minute), join(t, openEngine(t, url), "late", time.Minute)
		one.claim(exclusive(1, 0, "router1/snmp"), lockkeeper.Held)
		var whole <-chan lockkeeper.Status
		atWork(t, url, "router1/snmp", func() {
			whole = later(all, exclusive(1, lockkeeper.Forever, "router1"))
			unanswered(t, whole, "a claim of what is above")
		})
		if got := answered(t, whole); got != lockkeeper.Waiting {
			t.Errorf("the claim of router1 is %v", got)
		}
		late.claim(exclusive(1, 0, "router1/config"), lockkeeper.Ended)
		late.claim(exclusive(2, lockkeeper.Forever, "router1/config"), lockkeeper.Waiting)
		one.release(1)
		all.await(1, lockkeeper.Held)
		all.release(1)
		late.await(2, lockkeeper.Held)
	})
}

// A transaction below begins when the claim of the path above has been decided, and reads its
// result.
func TestWorkBelowWaitsForClaimAbove(t *testing.T) {
	onEach(t, func(t *testing.T, url string) {
		below, beside := join(t, openEngine(t, url), "below", time.Minute), join(t, openEngine(t, url), "beside", time.Minute)
		var part <-chan lockkeeper.Status
		atWork(t, url, "router1", func() {
			part = later(below, exclusive(1, lockkeeper.Forever, "router1/snmp"))
			unanswered(t, part, "a claim of what is below")
			beside.claim(exclusive(1, 0, "router2/snmp"), lockkeeper.Held)
		})
		if got := answered(t, part); got != lockkeeper.Held {
			t.Errorf("the claim of router1/snmp is %v", got)
		}
	})
}
