// Package voters decides which nodes of a cluster vote, which of them may lead, and by which single
// change the cluster comes nearer to that. Its functions are pure: the caller says what is the case,
// and carries out the answer. Package documentation of go.etcd.io/raft/v3 says what voters and
// learners are.
//
// # Which nodes vote
//
// A cluster has 1, 3 or 5 voters ([Policy].Voters), however many nodes it has. If fewer nodes may
// vote, it has the largest odd number of them, because an even number of voters bears no more losses
// than the odd number below. [Choose] takes the nodes in this order:
//
//	standing, rank, random number, address, name
//
// The last four are as in the election of snaplock. The standing comes first. The leader and the
// other healthy voters remain voters, though a node with a better rank appears: during each change
// of voters the cluster bears fewer losses. Then come healthy nodes that do not vote yet, and last
// lost voters: one of these is replaced if there is a node to replace it. Else it stays, because it
// may come back, and because the loss of a node must not make the cluster smaller. Nodes of rank
// [Off] never vote.
//
// # How the voters change
//
// [Next] returns at most one change, and none while another one is on its way:
//
//	outside ── Add ──> learner ── Promote ──> voter
//	   ^                 │  ^                  │ │
//	   │                 │  └───── Demote ─────┘ │
//	   └──── Remove ─────┴─────── Remove ────────┘
//
// Every node that answers becomes a learner, so any node has the table and answers any caller. A
// learner votes only after it has caught up. All missing learners are added before the first one is
// promoted, so that the number of voters is even for a short time only. A voter that is replaced is
// demoted only after its replacement votes. Only a retired id is removed, whose node was removed, or
// lost its disk and came back under another id: no process with its log counts any more, so it only
// counts against the majority, and goes first.
//
// No change may leave a cluster that can't commit: after a change, a majority of the voters must be
// reachable and caught up.
//
// # Which voter leads
//
// Any voter may win an election. [Yield] says to whom a leader transfers its leadership: only to a
// caught-up voter of rank [Leads], and only if it has not that rank itself. A leader that is turned
// off yields to the best caught-up voter, so that it can be removed. Otherwise a leader leads until
// it fails.
package voters
