package watching

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

func status(session string, state lockkeeper.State, change uint64) lockkeeper.Status {
	return lockkeeper.Status{Ref: lockkeeper.Ref{Session: session, ID: 1}, State: state, Change: change}
}

func frozen(path lockkeeper.Path) lockkeeper.Status {
	target := lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive}
	return lockkeeper.Status{
		Ref:    lockkeeper.Ref{Session: "operator", ID: 1},
		State:  lockkeeper.Freezing,
		Grants: []lockkeeper.Grant{{Target: target}},
	}
}

// over is how st looks when it has ended.
func over(st lockkeeper.Status, change uint64) lockkeeper.Status {
	st.State, st.Reason, st.Change = lockkeeper.Ended, lockkeeper.Released, change
	return st
}

// look is one reading of everything that a watcher selects, and what it must receive.
type look struct {
	all, ended []lockkeeper.Status
	received   []string
}

func TestWatcherReceivesChanges(t *testing.T) {
	held, waiting := status("a", lockkeeper.Held, 1), status("b", lockkeeper.Waiting, 2)
	granted := status("b", lockkeeper.Held, 4)
	first := look{all: []lockkeeper.Status{held, waiting}, received: []string{"a.1 held", "b.1 waiting"}}
	later := func(st lockkeeper.Status) lockkeeper.Status {
		st.Age, st.Left, st.ETA = time.Second, time.Minute, time.Hour
		st.Asked = &lockkeeper.Asked{Left: time.Second}
		st.Blockers = []lockkeeper.Blocker{{Age: time.Second, Left: time.Minute}}
		return st
	}
	muchLater := func(st lockkeeper.Status) lockkeeper.Status {
		st.Age, st.Left, st.ETA = 2*time.Second, 2*time.Minute, 2*time.Hour
		st.Asked = &lockkeeper.Asked{Left: time.Millisecond}
		st.Blockers = []lockkeeper.Blocker{{Age: 2 * time.Second, Left: time.Second}}
		return st
	}
	endless := held
	endless.Left = lockkeeper.Forever
	for name, looks := range map[string][]look{
		"an end is received before who got it next": {first,
			{[]lockkeeper.Status{granted}, []lockkeeper.Status{over(held, 3)}, []string{"a.1 ended released", "b.1 held"}}},
		"ends come in their order": {first,
			{nil, []lockkeeper.Status{over(waiting, 4), over(held, 3)}, []string{"a.1 ended released", "b.1 ended released"}}},
		"what ended unseen has no reason": {first,
			{[]lockkeeper.Status{waiting}, nil, []string{"a.1 ended"}}},
		"what came and went between two looks": {first,
			{[]lockkeeper.Status{held, waiting}, []lockkeeper.Status{over(status("c", lockkeeper.Held, 0), 3)},
				[]string{"c.1 ended released"}}},
		"what ended and is there again is as it is": {first,
			{[]lockkeeper.Status{held, granted}, []lockkeeper.Status{over(waiting, 3)}, []string{"b.1 held"}}},
		"nothing new": {first,
			{[]lockkeeper.Status{held, waiting}, nil, nil}},
		"the passing of time is no news": {
			{[]lockkeeper.Status{later(held)}, nil, []string{"a.1 held"}},
			{[]lockkeeper.Status{muchLater(held)}, nil, nil}},
		"an end where there was none is news": {
			{[]lockkeeper.Status{endless}, nil, []string{"a.1 held"}},
			{[]lockkeeper.Status{held}, nil, []string{"a.1 held"}}},
		"one who still sees an ended one is told once": {
			{[]lockkeeper.Status{over(held, 3)}, nil, []string{"a.1 ended released"}},
			{nil, []lockkeeper.Status{over(held, 3)}, nil}},
		"one operator freezes two paths": {
			{[]lockkeeper.Status{frozen("x"), frozen("y")}, nil, []string{"operator.1 frozen x", "operator.1 frozen y"}},
			{[]lockkeeper.Status{frozen("y")}, []lockkeeper.Status{over(frozen("x"), 0)},
				[]string{"operator.1 ended x released"}}},
	} {
		told := NewReported()
		for i, l := range looks {
			var received []string
			if !told.Changes(l.all, l.ended, func(st lockkeeper.Status, _ error) bool {
				received = append(received, say(st))
				return true
			}) {
				t.Errorf("%s, look %d: it says that the follower wants no more", name, i+1)
			}
			if !slices.Equal(received, l.received) {
				t.Errorf("%s, look %d: received %q, want %q", name, i+1, received, l.received)
			}
		}
	}
}

func say(st lockkeeper.Status) string {
	text := fmt.Sprintf("%s %s", st.Ref, st.State)
	for _, g := range st.Grants {
		text += " " + string(g.Path)
	}
	if st.Reason != lockkeeper.NoReason {
		text += " " + st.Reason.String()
	}
	return text
}

// Who wants no more is told no more, among what is gone and among what is there.
func TestTellStops(t *testing.T) {
	a, b := status("a", lockkeeper.Held, 1), status("b", lockkeeper.Held, 2)
	for _, l := range []look{
		{all: []lockkeeper.Status{a, b}},
		{all: []lockkeeper.Status{b}, ended: []lockkeeper.Status{over(a, 3)}},
	} {
		calls := 0
		more := NewReported().Changes(l.all, l.ended, func(lockkeeper.Status, error) bool {
			calls++
			return false
		})
		if more || calls != 1 {
			t.Errorf("%d calls, and wants more: %t; want one call, and no more", calls, more)
		}
	}
}
