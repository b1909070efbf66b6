package quorumlock

import (
	"fmt"
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
