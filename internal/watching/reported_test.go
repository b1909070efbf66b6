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

// read is one read of everything that a watcher selects, and the statuses that it must receive.
type read struct {
	all, ended []lockkeeper.Status
	received   []string
}

func TestWatcherReceivesChanges(t *testing.T) {
	held, waiting := status("a", lockkeeper.Held, 1), status("b", lockkeeper.Waiting, 2)
	granted := status("b", lockkeeper.Held, 4)
	first := read{all: []lockkeeper.Status{held, waiting}, received: []string{"a.1 held", "b.1 waiting"}}
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
	for name, looks := range map[string][]read{
		"an end comes before the next grant": {first,
			{[]lockkeeper.Status{granted}, []lockkeeper.Status{over(held, 3)}, []string{"a.1 ended released", "b.1 held"}}},
		"ends come in their order": {first,
			{nil, []lockkeeper.Status{over(waiting, 4), over(held, 3)}, []string{"a.1 ended released", "b.1 ended released"}}},
		"a claim that ended unseen has no reason": {first,
			{[]lockkeeper.Status{waiting}, nil, []string{"a.1 ended"}}},
		"a claim came and went between two reads": {first,
			{[]lockkeeper.Status{held, waiting}, []lockkeeper.Status{over(status("c", lockkeeper.Held, 0), 3)},
				[]string{"c.1 ended released"}}},
		"a claim that ended and is there again counts as present": {first,
			{[]lockkeeper.Status{held, granted}, []lockkeeper.Status{over(waiting, 3)}, []string{"b.1 held"}}},
		"nothing has changed": {first,
			{[]lockkeeper.Status{held, waiting}, nil, nil}},
		"the passing of time is no change": {
			{[]lockkeeper.Status{later(held)}, nil, []string{"a.1 held"}},
			{[]lockkeeper.Status{muchLater(held)}, nil, nil}},
		"a new deadline is a change": {
			{[]lockkeeper.Status{endless}, nil, []string{"a.1 held"}},
			{[]lockkeeper.Status{held}, nil, []string{"a.1 held"}}},
		"an end that is read twice is reported once": {
			{[]lockkeeper.Status{over(held, 3)}, nil, []string{"a.1 ended released"}},
			{nil, []lockkeeper.Status{over(held, 3)}, nil}},
		"one operator freezes two paths": {
			{[]lockkeeper.Status{frozen("x"), frozen("y")}, nil, []string{"operator.1 frozen x", "operator.1 frozen y"}},
			{[]lockkeeper.Status{frozen("y")}, []lockkeeper.Status{over(frozen("x"), 0)},
				[]string{"operator.1 ended x released"}}},
	} {
		reported := NewReported()
		for i, l := range looks {
			var received []string
			if !reported.Changes(l.all, l.ended, func(st lockkeeper.Status, _ error) bool {
				received = append(received, say(st))
				return true
			}) {
				t.Errorf("%s, read %d: Changes says that the watcher wants no more", name, i+1)
			}
			if !slices.Equal(received, l.received) {
				t.Errorf("%s, read %d: received %q, want %q", name, i+1, received, l.received)
			}
		}
	}
}

// A claim of which it is known that it ends, but not why, is reported once the reason is known. If
// it is gone and nothing is known of it, Missing names it.
func TestEndIsReportedWithItsReason(t *testing.T) {
	held, frozen := status("a", lockkeeper.Held, 1), frozen("x")
	reported := NewReported()
	var received []string
	changes := func(all, ended []lockkeeper.Status) {
		reported.Changes(all, ended, func(st lockkeeper.Status, _ error) bool {
			received = append(received, say(st))
			return true
		})
	}
	changes([]lockkeeper.Status{held, frozen}, nil)
	for _, gone := range []struct {
		all, ended []lockkeeper.Status
		missing    []lockkeeper.Ref
	}{
		{missing: []lockkeeper.Ref{held.Ref}},
		{all: []lockkeeper.Status{held}},
		{ended: []lockkeeper.Status{over(held, 2)}},
	} {
		if got := reported.Missing(gone.all, gone.ended); !slices.Equal(got, gone.missing) {
			t.Errorf("%+v: missing %v, want %v", gone, got, gone.missing)
		}
	}
	unknown := lockkeeper.Ref{Session: "nobody", ID: 1}
	changes(append(reported.Latest([]lockkeeper.Ref{held.Ref, unknown}), frozen), nil)
	changes([]lockkeeper.Status{frozen}, []lockkeeper.Status{over(held, 2)})
	if want := []string{"a.1 held", "operator.1 frozen x", "a.1 ended released"}; !slices.Equal(received, want) {
		t.Errorf("received %q, want %q", received, want)
	}
	if got := append(reported.Missing(nil, nil), refsOf(reported.Latest([]lockkeeper.Ref{held.Ref}))...); len(got) > 0 {
		t.Errorf("%v counts as live after its end", got)
	}
}

func refsOf(all []lockkeeper.Status) (refs []lockkeeper.Ref) {
	for i := range all {
		refs = append(refs, all[i].Ref)
	}
	return refs
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

// A watcher that wants no more receives no more, neither ends nor changes.
func TestChangesStopsWithItsWatcher(t *testing.T) {
	a, b := status("a", lockkeeper.Held, 1), status("b", lockkeeper.Held, 2)
	for _, l := range []read{
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
