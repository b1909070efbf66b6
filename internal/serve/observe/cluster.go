package observe

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/exposition"
)

// registerCluster makes what a node of a cluster states of it. Each reading looks once.
func (m *Metrics) registerCluster(look func() lockkeeper.ClusterStatus) {
	var now lockkeeper.ClusterStatus
	m.registry.Before(func() { now = look() })
	add := func(name, help string, value func() float64) { m.gauge("lockkeeper_cluster_"+name, help, value) }
	for _, s := range []struct {
		name  string
		state lockkeeper.NodeState
	}{
		{"starting", lockkeeper.NodeStarting}, {"no_quorum", lockkeeper.NodeNoQuorum},
		{"disk_stuck", lockkeeper.NodeDiskStuck}, {"stopped", lockkeeper.NodeStopped},
	} {
		add(s.name, "1 while the state of this node is: "+string(s.state)+".",
			func() float64 { return oneIf(now.State == s.state) })
	}
	add("leads", "1 while this node leads its cluster.", func() float64 { return oneIf(now.Leader == now.Node) })
	add("voters_wanted", "How many nodes should vote.", func() float64 { return float64(now.Voters) })
	add("voters_reached", "Voters that this node reaches, itself included.", func() float64 { return float64(now.Live) })
	add("voters_needed", "Voters that a majority has.", func() float64 { return float64(now.Majority) })
	add("nodes", "Nodes of the cluster.", func() float64 { return float64(len(now.Nodes)) })
	add("term", "Rises with every election of a leader.", func() float64 { return float64(now.Term) })
	add("applied", "Number of the latest change that this node has.", func() float64 { return float64(now.Applied) })
	add("no_quorum_seconds", "For how long this node has had no contact with a leader.",
		func() float64 {
			if now.State == lockkeeper.NodeDiskStuck {
				return 0 // a leader is in contact with it
			}
			return now.Since.Round(time.Millisecond).Seconds()
		})
	var kinds []string
	for _, kind := range lockkeeper.AlarmKinds() {
		kinds = append(kinds, string(kind))
	}
	m.registry.Funcs(exposition.KindGauge, "lockkeeper_cluster_alarms", "What lk cluster ls shows as alarms, by kind.",
		"kind", kinds, func(i int) (n float64) {
			for _, a := range now.Alarms {
				n += oneIf(string(a.Kind) == kinds[i])
			}
			return n
		})
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
