package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// followCluster checks the node again when it loses or finds the cluster, and when nodes come and go, so
// that the log shows that at once, and logs each other leader.
//
// An election is no outage: until the node lacks a quorum for long enough to say so, it is not checked.
//
// A node that was removed before it was started has no use: followCluster then sends an error. One that is removed
// while it runs goes on, to tell its clients where the others are.
func (s *service) followCluster(failed chan<- error) {
	leader := ""
	again := time.NewTicker(alarmEvery)
	defer again.Stop()
	var alarms alarmLog
	for {
		_, nodes := s.node.Nodes()
		status := s.node.Changed()
		now := s.node.Cluster()
		if now.Leader != "" || now.State != lockkeeper.NodeReady {
			s.health.Changed()
		}
		if now.State == lockkeeper.NodeStarting && isRemoved(&now) {
			failed <- &exit{code: exitDenied, say: errNodeRemoved}
			return
		}
		if now.Leader != leader && now.Leader != "" {
			said := "the cluster has another leader"
			if leader == "" {
				said = "the cluster has a leader"
			}
			leader = now.Leader
			s.log.Info(said, "leader", leader, "term", now.Term, "applied", now.Applied)
		}
		select {
		case <-nodes:
		case <-status:
		case <-again.C:
			alarms.follow(s.log, s.node.Cluster().Alarms)
		case <-s.life.Done():
			return
		}
	}
}

var errNodeRemoved = errors.New("this node was removed from the cluster: to use the machine again, empty its folder, " +
	"and join with a new token")

// isRemoved reports whether the node that says so was removed from its cluster.
func isRemoved(s *lockkeeper.ClusterStatus) bool {
	return slices.ContainsFunc(s.Alarms, func(a lockkeeper.Alarm) bool { return a.Kind == lockkeeper.AlarmRemoved })
}

// alarmEvery is how often the alarms are read. An alarm that is there twice is logged: a node that restarts
// is missing for less.
const alarmEvery = 5 * time.Second

// An alarmLog logs each alarm once when it has come, and once when it has gone.
type alarmLog struct{ seen, logged map[alarmKey]bool }

// alarmKey is what stays the same in an alarm that goes on.
type alarmKey struct {
	kind lockkeeper.AlarmKind
	node string
}

// follow takes the present alarms.
func (l *alarmLog) follow(log *slog.Logger, alarms []lockkeeper.Alarm) {
	seen, logged := make(map[alarmKey]bool), make(map[alarmKey]bool)
	for _, a := range alarms {
		key := alarmKey{a.Kind, a.Node}
		seen[key] = true
		if logged[key] = l.logged[key] || l.seen[key]; logged[key] && !l.logged[key] {
			log.Warn("alarm", "kind", a.Kind, "node", a.Node, "alarm", a.Text, "remedy", a.Remedy)
		}
	}
	for key, was := range l.logged {
		if was && !seen[key] {
			log.Info("alarm is over", "kind", key.kind, "node", key.node)
		}
	}
	l.seen, l.logged = seen, logged
}

// joinGrace is how long a node may take to find its cluster, and to get its locks.
const joinGrace = 5 * time.Second

// startGrace returns how long this server may take until it is ready.
func (s *service) startGrace() time.Duration {
	if s.node == nil {
		return 0
	}
	return joinGrace
}

// clusterConcern returns the check of the cluster, for /readyz; nil without a node.
func (s *service) clusterConcern() func() lockkeeper.Finding {
	if s.node == nil {
		return nil
	}
	return func() lockkeeper.Finding {
		now := s.node.Cluster()
		return clusterFinding(&now)
	}
}

// clusterFinding says whether a node can answer calls. Everybody may read it, so it names no nodes.
func clusterFinding(s *lockkeeper.ClusterStatus) lockkeeper.Finding {
	f := lockkeeper.Finding{
		Check:  "cluster",
		Detail: fmt.Sprintf("%s: %s reached, %d needed", s.State, plural(s.Live, "voter"), s.Majority),
	}
	switch {
	case s.State == lockkeeper.NodeStopped:
		f.Grade, f.Remedy = lockkeeper.Broken, "lk cluster ls on this machine says why this node has stopped"
	case isRemoved(s):
		f.Grade, f.Detail = lockkeeper.Broken, "removed: this node is no part of the cluster any more"
		f.Remedy = "stop it; to use the machine again, empty its folder, and join with a new token"
	case s.State != lockkeeper.NodeReady:
		f.Grade, f.Remedy = lockkeeper.Broken, "lk cluster ls on this machine says why, and which nodes to start"
	case len(s.Alarms) > 0:
		f.Grade, f.Remedy = lockkeeper.Doubtful, "lk cluster ls on this machine says what to do"
		f.Detail += ", " + plural(len(s.Alarms), "alarm")
	}
	return f
}
