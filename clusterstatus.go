package lockkeeper

import (
	"encoding/json"
	"time"
)

// A NodeState says whether a node of a cluster can answer calls.
//
//	starting ──> ready <──> no quorum            stopped: for good, until the process starts again
type NodeState string

// The states of a node.
const (
	// NodeStarting: the node has had no contact with a leader since it was opened.
	NodeStarting NodeState = "starting"
	// NodeReady: a leader and this node are in contact, so calls are answered.
	NodeReady NodeState = "ready"
	// NodeNoQuorum: no leader is in contact with this node. Calls wait, and locks are neither granted
	// nor lost by that.
	NodeNoQuorum NodeState = "no quorum"
	// NodeStopped: the node has found its disk or its state damaged, or needs another version of the
	// program; see ClusterStatus.Failed.
	NodeStopped NodeState = "stopped"
)

// A NodeRole is the part of a node in its cluster.
type NodeRole string

// The roles of nodes.
const (
	NodeVoter   NodeRole = "voter"   // votes, and may lead
	NodeLearner NodeRole = "learner" // has all locks, answers callers, and does not vote
	NodeOutside NodeRole = "outside" // is not in the configuration yet: it was not reached since it joined
)

// A ClusterStatus is a cluster as one of its nodes knows it. In JSON durations are seconds.
type ClusterStatus struct {
	Cluster string        `json:"cluster"` // its id
	Node    string        `json:"node"`    // the name of the node that says so
	State   NodeState     `json:"state"`   // of that node
	Since   time.Duration `json:"since"`   // for how long there has been no quorum
	Failed  string        `json:"failed,omitempty"`
	Leader  string        `json:"leader,omitempty"` // "": none that the node knows
	Term    uint64        `json:"term"`             // rises with every election
	Applied uint64        `json:"applied"`          // the number of the latest change of the log that the node has
	Rules   uint64        `json:"rules"`            // the version of the rules that the cluster runs under

	Voters   int `json:"voters"`   // how many nodes should vote, if there are enough
	Majority int `json:"majority"` // how many of the present voters have to live
	Live     int `json:"live"`     // present voters that the node reaches, itself included

	Nodes  []NodeStatus `json:"nodes"` // by name
	Alarms []string     `json:"alarms,omitempty"`
}

// A NodeStatus is one node of a cluster. In JSON durations are seconds.
type NodeStatus struct {
	Name    string   `json:"name"`
	ID      string   `json:"id"`      // 16 hexadecimal digits; another one after the loss of its disk
	Address string   `json:"address"` // where other nodes reach it
	Clients string   `json:"clients,omitempty"`
	Rank    string   `json:"rank"` // 0 to 15, the lower the sooner it votes and leads; "off": it never votes
	Role    NodeRole `json:"role"`
	Leads   bool     `json:"leads"`

	Reached bool          `json:"reached"`         // the node that says so has a connection to it, or is it
	Silent  time.Duration `json:"silent"`          // for how long it has none
	Error   string        `json:"error,omitempty"` // of the latest attempt to reach it
}

type plainCluster ClusterStatus

type clusterJSON struct {
	plainCluster
	Since seconds `json:"since"`
}

// MarshalJSON writes the duration as seconds.
func (s ClusterStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(clusterJSON{plainCluster(s), seconds(s.Since)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *ClusterStatus) UnmarshalJSON(text []byte) error {
	var read clusterJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*s = ClusterStatus(read.plainCluster)
	s.Since = time.Duration(read.Since)
	return nil
}

type plainNode NodeStatus

type nodeJSON struct {
	plainNode
	Silent seconds `json:"silent"`
}

// MarshalJSON writes the duration as seconds.
func (s NodeStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(nodeJSON{plainNode(s), seconds(s.Silent)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *NodeStatus) UnmarshalJSON(text []byte) error {
	var read nodeJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*s = NodeStatus(read.plainNode)
	s.Silent = time.Duration(read.Silent)
	return nil
}
