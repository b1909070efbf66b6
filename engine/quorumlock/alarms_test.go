package quorumlock

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
)

// A server that was started without --tokens opens a cluster whose other servers have them, or admits nobody under
// its policy.
func TestOpenNodesAreAlarms(t *testing.T) {
	for name, c := range map[string]struct {
		open   []bool
		policy string
		want   string
	}{
		"all are open":       {[]bool{true, true}, "", "[]"},
		"none is":            {[]bool{false, false}, "", "[]"},
		"one is":             {[]bool{false, true}, "", "[open node node2]"},
		"under a policy":     {[]bool{true, true}, "rules", "[open node node1 open node node2]"},
		"none, and a policy": {[]bool{false}, "rules", "[]"},
	} {
		var settings []replica.Setting
		for i, open := range c.open {
			settings = append(settings, nodeSetting(t, join.Node{Name: fmt.Sprint("node", i+1), ID: uint64(i + 1), Open: open}))
		}
		if c.policy != "" {
			settings = append(settings, replica.Setting{Key: replica.PolicyKey, Value: []byte(c.policy)})
		}
		got := []any{}
		addOpenNodes(newView(0, 0, settings), func(kind lockkeeper.AlarmKind, node, _, _ string) {
			got = append(got, kind, node)
		})
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

// A cluster of several nodes with fewer voters than it wants says so, whether nodes are off or were never there.
func TestTooFewVotersAreAnAlarm(t *testing.T) {
	t.Parallel()
	ms := newMachines(t, 1)
	ms.settle(1, 0)
	alarm := func() string {
		all := ms.all[0].engine.Cluster().Alarms
		i := slices.IndexFunc(all, func(a lockkeeper.Alarm) bool { return a.Kind == lockkeeper.AlarmNoReserve })
		if i < 0 {
			return ""
		}
		return all[i].Text
	}
	const few = "the cluster has 1 of the 3 voters that it wants: the loss of one more stops the cluster"
	says := func(when, want string) {
		t.Helper()
		ms.until(when+": "+want, func() bool { return alarm() == want })
	}
	if got := alarm(); got != "" {
		t.Errorf("of one node: %s", got)
	}
	for _, name := range []string{"node2", "node3"} {
		m := ms.add(name)
		ms.must(m.join(ms.token()))
		m.start()
		if name == "node2" {
			says("of two nodes", few)
		}
	}
	says("of three nodes", "")
	ms.must(ms.all[0].engine.SetRank(ms.ctx(), "node3", RankOff))
	says("with one that is off", few)
	ms.must(ms.all[0].engine.SetVoters(ms.ctx(), 1))
	says("of which one should vote", "")
	ms.must(ms.all[0].engine.SetVoters(ms.ctx(), 3))
	ms.must(ms.all[0].engine.SetRank(ms.ctx(), "node3", DefaultRank))
	ms.settle(3, 0)
	ms.until("all are reached", func() bool { return ms.all[0].engine.Cluster().Live == 3 })
	if got := alarm(); got != "" {
		t.Errorf("of three voters: %s", got)
	}
	ms.all[2].stop()
	ms.until("of a lost voter", func() bool { return strings.HasPrefix(alarm(), "2 of 3 voters are reached: ") })
}
