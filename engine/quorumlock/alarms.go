package quorumlock

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
)

// warnedBefore is how long before its end the certificate of the CA is an alarm.
const warnedBefore = 60 * 24 * time.Hour

// alarms returns what an operator has to act on. s has all but the alarms; present is how many voters there
// are; unreadable says why the members can't be read from v, if so.
func (h *host) alarms(s *lockkeeper.ClusterStatus, v join.View, present int, unreadable error) (
	all []lockkeeper.Alarm) {
	add := func(kind lockkeeper.AlarmKind, node, text, remedy string) {
		all = append(all, lockkeeper.Alarm{Kind: kind, Node: node, Text: text, Remedy: remedy})
	}
	if why := h.full.Load(); why != nil {
		add(lockkeeper.AlarmDiskFull, s.Node, "the disk of this node is full: "+*why, "make room; it goes on by itself")
	} else if s.State == lockkeeper.NodeDiskStuck {
		add(lockkeeper.AlarmDiskStuck, s.Node,
			fmt.Sprintf("the disk of this node has taken no write for %s", s.Since.Round(time.Second)),
			"look for its failure, or for what else keeps it busy")
	}
	if h.isRemoved(v) {
		add(lockkeeper.AlarmRemoved, s.Node, "this node was removed from the cluster",
			"stop it; to use it again, join from an empty folder with a new token")
		return all // the others refuse it
	}
	if unreadable != nil {
		add(lockkeeper.AlarmUnreadable, "", unreadable.Error(), "restart the nodes with the newest program among them")
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; !n.Reached {
			silent := max(n.Silent.Round(time.Second), time.Second)
			add(lockkeeper.AlarmNotReached, n.Name,
				fmt.Sprintf("node %q, a %s, has not been reached for %s: %s", n.Name, n.Role, silent, n.Error),
				"start it, or mend the network to it; if its disk is lost: lk cluster remove "+n.Name)
		}
	}
	if present > 0 && s.Live < s.Majority {
		add(lockkeeper.AlarmNoQuorum, "",
			fmt.Sprintf("%d of %d voters are reached, and %d are needed: nothing is granted", s.Live, present, s.Majority),
			"start the voters that are not reached; if the disks of a majority are lost: lk cluster recover")
	} else if text, remedy := reserve(s, present); text != "" {
		add(lockkeeper.AlarmNoReserve, "", text, remedy)
	}
	mayVote := func(n lockkeeper.NodeStatus) bool { return n.Rank != voters.Off.String() }
	if len(s.Nodes) > 0 && !slices.ContainsFunc(s.Nodes, mayVote) {
		add(lockkeeper.AlarmNoCandidate, "", "all nodes have the rank off, so none may vote instead of one that is lost",
			"give nodes a rank: lk cluster rank NODE 8")
	}
	addOpenNodes(v, add)
	if left := time.Until(h.keys.AuthorityEnds()); left < warnedBefore {
		add(lockkeeper.AlarmCertificate, "",
			fmt.Sprintf("the certificate of the cluster's CA ends in %s", left.Round(time.Hour)),
			"replace it, as docs/engines/cluster-certificates.md says")
	}
	return all
}

// addOpenNodes adds an alarm for each node whose server authenticates nobody, if others do, or if the cluster has a
// policy.
func addOpenNodes(v join.View, add func(kind lockkeeper.AlarmKind, node, text, remedy string)) {
	nodes, err := join.Nodes(v)
	if err != nil {
		return // that is an alarm, too
	}
	ruled := len(v.Setting(replica.PolicyKey).Value) > 0
	if !ruled && !slices.ContainsFunc(nodes, func(n join.Node) bool { return !n.Open }) {
		return
	}
	for i := range nodes {
		text := "node %q admits everybody who reaches it, and others authenticate their clients"
		if ruled {
			text = "node %q admits nobody: the cluster has a policy, and its server does not authenticate its clients"
		}
		if nodes[i].Open {
			add(lockkeeper.AlarmOpenNode, nodes[i].Name, fmt.Sprintf(text, nodes[i].Name),
				"start it with --tokens or --client-ca, as the others")
		}
	}
}

// reserve says why the loss of one more voter stops the cluster, though the cluster wants to bear that; "" if it bears
// it, or is of one node. A majority of the present voters is reached.
func reserve(s *lockkeeper.ClusterStatus, present int) (text, remedy string) {
	switch {
	case s.Live > s.Majority:
	case s.Live < present:
		return fmt.Sprintf("%d of %d voters are reached: the loss of one more stops the cluster", s.Live, present),
			"start the voters that are not reached"
	case 0 < present && present < s.Voters && len(s.Nodes) > 1:
		return fmt.Sprintf("the cluster has %d of the %d voters that it wants: the loss of one more stops the cluster",
				present, s.Voters),
			"give nodes that are off a rank (lk cluster rank NODE 8), or add nodes (lk cluster token)"
	}
	return "", ""
}

// isRemoved reports whether this node was removed from the cluster. Others refuse a removed node at once, so
// it mostly knows from their refusals alone, and not from the log.
func (h *host) isRemoved(v join.View) bool {
	return h.refused() || len(v.Setting(voters.ExpelledKey(h.store.Identity().ID)).Value) > 0
}

// refused reports whether another node has refused this one because it was removed. That stays so: no id is
// used twice.
func (h *host) refused() bool {
	id := join.FormatID(h.store.Identity().ID)
	for _, p := range h.transport.Status() {
		if !p.Connected && strings.Contains(p.LastError, id) && strings.Contains(p.LastError, join.WasRemoved) &&
			h.refusedAt.CompareAndSwap(nil, new(time.Now())) {
			h.config.log().Error("this node was removed from the cluster, and tries to reach it no more", "refused_by",
				join.FormatID(p.ID))
		}
	}
	return h.refusedAt.Load() != nil
}
