package main

import (
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// A node that was removed, or has stopped, reaches no others: starting nodes would not help it.
func TestRemedyOfANodeThatIsNotReady(t *testing.T) {
	for state, remedy := range map[lockkeeper.NodeState]string{
		lockkeeper.NodeStarting: "says why, and which nodes to start",
		lockkeeper.NodeNoQuorum: "says why, and which nodes to start",
		lockkeeper.NodeStopped:  "says why this node has stopped",
	} {
		f := clusterFinding(&lockkeeper.ClusterStatus{State: state})
		if f.Grade != lockkeeper.Broken || !strings.HasSuffix(f.Remedy, remedy) {
			t.Errorf("%s: %+v", state, f)
		}
	}
}
