package lockkeeper

import (
	"encoding/json"
	"time"
)

// A NodeState says whether a node of a cluster can answer calls.
//
//	starting ──> ready <──> no quorum            stopped: for good, until the process starts again
//	               ^──────> disk stuck
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
	// NodeDiskStuck: the disk of the node is full, or hangs: it has taken no write for 2 s. Calls wait;
	// clients go to other nodes. A leader lets another voter lead, if one can.
	NodeDiskStuck NodeState = "disk stuck"
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
	Since   time.Duration `json:"since"`   // for how long the state is NodeNoQuorum or NodeDiskStuck
	Failed  string        `json:"failed,omitempty"`
	Leader  string        `json:"leader,omitempty"` // "": none that the node knows
	Term    uint64        `json:"term"`             // rises with every election
	Applied uint64        `json:"applied"`          // the number of the latest change of the log that the node has
	Rules   uint64        `json:"rules"`            // the version of the rules that the cluster runs under

	Voters   int `json:"voters"`   // how many nodes should vote, if there are enough
	Majority int `json:"majority"` // how many of the present voters have to live
	Live     int `json:"live"`     // present voters that the node reaches, itself included

	Nodes  []NodeStatus `json:"nodes"` // by name
	Alarms []Alarm      `json:"alarms,omitempty"`
}

// An Alarm is something that an operator has to act on. While it goes on, its Kind and Node stay, and the
// figures in its Text change.
type Alarm struct {
	Kind   AlarmKind `json:"kind"`
	Node   string    `json:"node,omitempty"` // the name of the node that it is about; "": the cluster as a whole
	Text   string    `json:"text"`           // what is wrong, for people
	Remedy string    `json:"remedy"`         // what to do about it
}

// An AlarmKind says what is wrong, for programs.
type AlarmKind string

// AlarmKinds returns all kinds of alarms.
func AlarmKinds() []AlarmKind {
	return []AlarmKind{
		AlarmDiskFull, AlarmDiskStuck, AlarmRemoved, AlarmNotReached, AlarmNoQuorum, AlarmNoReserve, AlarmNoCandidate,
		AlarmCertificate, AlarmUnreadable, AlarmOpenNode,
	}
}

// The kinds of alarms.
const (
	AlarmDiskFull    AlarmKind = "disk full"        // the node can't write, and goes on when there is room
	AlarmDiskStuck   AlarmKind = "disk stuck"       // it has taken no write for 2 s or more
	AlarmRemoved     AlarmKind = "removed"          // the node is no part of the cluster any more
	AlarmNotReached  AlarmKind = "not reached"      // the node that says so has no connection to another one
	AlarmNoQuorum    AlarmKind = "no quorum"        // too few voters are reached: nothing is granted
	AlarmNoReserve   AlarmKind = "no reserve"       // the loss of one more voter stops a cluster that wants to bear it
	AlarmNoCandidate AlarmKind = "no candidate"     // no node may vote instead of one that is lost
	AlarmCertificate AlarmKind = "certificate ends" // that of the cluster's CA, within 60 days
	AlarmUnreadable  AlarmKind = "unreadable"       // the node can't read who the members are
	AlarmOpenNode    AlarmKind = "open node"        // its server authenticates nobody, unlike others or against the policy
)

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
