package observe

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// Lines of a node of a cluster have the position in its log of what they report, and none if the watch
// does not know it.
func TestLinesHaveThePositionInTheLog(t *testing.T) {
	a, path := auditFile(t)
	w := NewWatch(memlock.New(), nil, a, nil)
	status := func(id uint64, state lockkeeper.State, fence, index uint64) {
		w.record(&lockkeeper.Status{
			Ref:      lockkeeper.Ref{Session: "s", ID: id},
			State:    state,
			Fence:    fence,
			Left:     lockkeeper.Forever,
			Grants:   []lockkeeper.Grant{{Target: lockkeeper.Target{Path: "db", Mode: lockkeeper.ModeExclusive}}},
			LogIndex: index,
		})
	}
	status(1, lockkeeper.Waiting, 0, 7)
	status(1, lockkeeper.Held, 1, 8)
	status(1, lockkeeper.Ended, 1, 9)
	status(2, lockkeeper.Ended, 2, 11) // its grant came before
	status(3, lockkeeper.Freezing, 0, 12)
	status(3, lockkeeper.Ended, 0, 13)
	must(t, 0, a.Close())
	lines, _ := read(t, path)
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprint(l.Event, " ", l.Index))
	}
	want := []string{"granted 8", "ended 9", "granted 0", "ended 11", "frozen 12", "thawed 13"}
	if !slices.Equal(got, want) {
		t.Errorf("the lines are %q, want %q", got, want)
	}
}
