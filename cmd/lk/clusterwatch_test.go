package main

import (
	"log/slog"
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
	removed := clusterFinding(&lockkeeper.ClusterStatus{
		State: lockkeeper.NodeNoQuorum, Alarms: []lockkeeper.Alarm{{Kind: lockkeeper.AlarmRemoved}},
	})
	if removed.Grade != lockkeeper.Broken || !strings.HasPrefix(removed.Detail, "removed: ") ||
		!strings.HasSuffix(removed.Remedy, "join with a new token") {
		t.Errorf("a node that was removed: %+v", removed)
	}
}

// An alarm that stays is logged once, with what to do, and its end once. One that is gone soon is not logged.
func TestAlarmsAreLoggedOnce(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	var l alarmLog
	missing := func(node, since string) lockkeeper.Alarm {
		return lockkeeper.Alarm{
			Kind: lockkeeper.AlarmNotReached, Node: node, Text: "not reached for " + since, Remedy: "start it",
		}
	}
	l.follow(log, []lockkeeper.Alarm{missing("two", "1s"), missing("three", "1s")})
	if out.Len() > 0 {
		t.Errorf("logged at once: %s", &out)
	}
	for _, since := range []string{"6s", "11s", "16s"} {
		l.follow(log, []lockkeeper.Alarm{missing("two", since)})
	}
	l.follow(log, nil)
	l.follow(log, nil)
	said := out.String()
	if strings.Count(said, "msg=alarm ") != 1 || strings.Count(said, `msg="alarm is over"`) != 1 ||
		strings.Contains(said, "three") || !strings.Contains(said, "start it") {
		t.Errorf("logged:\n%s", said)
	}
}
