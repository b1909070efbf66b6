package redlock

import (
	"slices"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
)

const (
	testNow = quorum.Micros(1_000_000_000)
	second  = quorum.Micros(1_000_000)
)

// knows is a server that knows the states of claims of one session, which lives for ten seconds.
func knows(session string, states ...quorum.ClaimState) *reading {
	return &reading{now: testNow, sessions: map[string]*quorum.SessionState{
		session: {ID: session, Until: testNow + 10*second, Claims: states},
	}}
}

func votedFor(vote, counter uint64) quorum.ClaimState {
	return quorum.ClaimState{
		ID:      1,
		State:   lockkeeper.Held,
		Vote:    vote,
		Counter: counter,
		Since:   testNow - second,
		Want:    &quorum.WantRecord{Paths: []string{"db"}},
	}
}

func waits() quorum.ClaimState {
	return quorum.ClaimState{
		ID:       1,
		State:    lockkeeper.Waiting,
		Since:    testNow - second,
		Position: 1,
		Blockers: []quorum.Blocker{{
			Ref:   lockkeeper.Ref{Session: "h", ID: 3},
			Path:  "db",
			Vote:  4,
			Since: testNow - 2*second,
		}},
		Want: &quorum.WantRecord{Paths: []string{"db"}},
	}
}

func over(why lockkeeper.Reason) quorum.ClaimState {
	return quorum.ClaimState{ID: 1, State: lockkeeper.Ended, Reason: why, Want: &quorum.WantRecord{Paths: []string{"db"}}}
}

// expired is a server where the session has ended by its time, but its record is still there.
func expired(r *reading) *reading {
	for _, s := range r.sessions {
		s.Until = r.now - 1
	}
	return r
}

func nothing() *reading { return &reading{now: testNow} }

func TestMergedState(t *testing.T) {
	for name, c := range map[string]struct {
		servers []*reading
		want    lockkeeper.State
		fence   uint64
		reason  lockkeeper.Reason
	}{
		"one server votes": {
			servers: []*reading{knows("s", votedFor(4, 4))}, want: lockkeeper.Held, fence: 4},
		"a majority votes": {
			servers: []*reading{knows("s", votedFor(4, 4)), knows("s", votedFor(4, 4)), nil}, want: lockkeeper.Held, fence: 4},
		"a vote was stamped": {
			servers: []*reading{knows("s", votedFor(2, 4)), knows("s", votedFor(4, 4)), nothing()},
			want:    lockkeeper.Held, fence: 4},
		"votes without a common fence": {
			servers: []*reading{knows("s", votedFor(2, 2)), knows("s", votedFor(4, 4)), knows("s", waits())},
			want:    lockkeeper.Waiting},
		"a minority votes": {
			servers: []*reading{knows("s", votedFor(4, 4)), knows("s", waits()), knows("s", waits())}, want: lockkeeper.Waiting},
		"a minority votes, and one is silent": {
			servers: []*reading{knows("s", votedFor(4, 4)), nothing(), nil}, want: lockkeeper.Waiting},
		"a minority knows it": {
			servers: []*reading{knows("s", waits()), nothing(), nothing()}},
		"the session ended at a majority": {
			servers: []*reading{
				knows("s", votedFor(4, 4)), expired(knows("s", votedFor(4, 4))), expired(knows("s", votedFor(4, 4)))},
			want: lockkeeper.Ended, reason: lockkeeper.Expired},
		"it ended at a majority": {
			servers: []*reading{knows("s", votedFor(4, 4)), knows("s", over(lockkeeper.Stolen)),
				knows("s", over(lockkeeper.Stolen))},
			want: lockkeeper.Ended, reason: lockkeeper.Stolen},
		"it ended for two reasons": {
			servers: []*reading{knows("s", over(lockkeeper.Expired)), knows("s", over(lockkeeper.Released)),
				knows("s", over(lockkeeper.Released))},
			want: lockkeeper.Ended, reason: lockkeeper.Released},
	} {
		t.Run(name, func(t *testing.T) {
			var st lockkeeper.Status
			if all := merge(c.servers); len(all) > 0 {
				st, _ = all[0].status(false)
			}
			if st.State != c.want || st.Fence != c.fence || st.Reason != c.reason {
				t.Errorf("merged: %s (%s) with fence %d, want %s (%s) with fence %d",
					st.State, st.Reason, st.Fence, c.want, c.reason, c.fence)
			}
		})
	}
}

func TestMergedWaitHasItsBlockers(t *testing.T) {
	all := merge([]*reading{knows("s", waits()), knows("s", waits()), nil})
	st, ok := all[0].status(false)
	heldBy := []lockkeeper.WaitReason{lockkeeper.HeldBy}
	if !ok || len(st.Blockers) != 1 || st.Position != 1 || !slices.Equal(st.Waits, heldBy) {
		t.Fatalf("merged: %+v, want one blocker", st)
	}
	if b := st.Blockers[0]; b.Ref != (lockkeeper.Ref{Session: "h", ID: 3}) || b.Age != 2*time.Second || b.Path != "db" {
		t.Errorf("the blocker is %+v", b)
	}
	if brief, _ := all[0].status(true); brief.Position != 0 || brief.Blockers != nil || brief.Waits != nil {
		t.Errorf("brief: %+v, want nothing about the wait", brief)
	}
}

func TestFollowerReceivesEachChangeOnce(t *testing.T) {
	f := newFollower(lockkeeper.Query{Meets: "db"})
	anonymous := over(lockkeeper.Released)
	anonymous.Want = nil
	all := func(r func() *reading) []*reading { return []*reading{r(), r(), r()} }
	for i, step := range []struct {
		servers []*reading
		want    []string
	}{
		{all(func() *reading { return knows("s", over(lockkeeper.Stolen)) }), nil}, // it ended before
		{all(func() *reading { return knows("t", waits()) }), []string{"t.1 waiting"}},
		{all(func() *reading { return knows("t", waits()) }), nil},
		{all(func() *reading { return knows("t", votedFor(4, 4)) }), []string{"t.1 held"}},
		{all(func() *reading { return knows("t", anonymous) }), []string{"t.1 ended released"}},
		{all(func() *reading { return knows("t", anonymous) }), nil},
		{all(func() *reading { return knows("u", over(lockkeeper.TimedOut)) }), []string{"u.1 ended timed out"}},
		{all(nothing), nil},
	} {
		var got []string
		m := &moment{claims: merge(step.servers), change: uint64(testNow) + uint64(i)}
		f.report(m, func(st lockkeeper.Status, _ error) bool {
			text := st.Ref.String() + " " + st.State.String()
			if st.State == lockkeeper.Ended {
				text += " " + st.Reason.String()
			}
			if got = append(got, text); st.Change == 0 || len(st.Grants) == 0 {
				t.Errorf("step %d: %+v", i, st)
			}
			return true
		})
		if !slices.Equal(got, step.want) {
			t.Errorf("step %d: received %q, want %q", i, got, step.want)
		}
	}
}
