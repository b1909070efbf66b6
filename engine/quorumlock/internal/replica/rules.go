package replica

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
	"github.com/lockkeeper/lockkeeper/table"
)

// Rules are the versions of the rules that a program has. It has the code of the cluster's version
// and, after an upgrade, that of the next one:
//
//	cluster under rules 2          every member has reported 3         cluster under rules 3
//	programs 2..2 and 2..3  ─────────────────────────────────────>  programs 2..3 and later
//
// Each node reports the latest version that its program has, in a setting. When all voters and
// learners have reported a version above the cluster's, the leader proposes to raise it. When that
// entry is applied, all nodes count the reports once more, at one position of the log, and step all
// later commands under the new version. Nothing lowers it. So no node has to step a command under
// rules that it does not have, unless its program is replaced by an earlier one, or it joins late:
// then it stops ([ErrVersion]).
type Rules struct {
	Oldest, Latest uint64

	// Step makes a command under a version from Oldest to Latest, on every node alike.
	Step func(version uint64, t *table.Table, c *table.Command) (table.Reply, error)
}

var tableRules = Rules{
	Oldest: table.RulesVersion,
	Latest: table.RulesVersion,
	Step:   func(_ uint64, t *table.Table, c *table.Command) (table.Reply, error) { return t.Step(c) },
}

// ErrVersion says that the program of a node does not have the rules, or does not know the form, of
// the log. Another version of the program can go on under the same id.
var ErrVersion = errors.New("the log needs another version of the program")

func (rs *Rules) check(version uint64) error {
	switch {
	case version > rs.Latest:
		return fmt.Errorf("%w: the cluster runs under rules %d, this program has rules %d to %d: run a later version",
			ErrVersion, version, rs.Oldest, rs.Latest)
	case version < rs.Oldest:
		return fmt.Errorf("%w: the cluster runs under rules %d, this program has rules %d to %d: run a version that has "+
			"rules %d on all nodes first", ErrVersion, version, rs.Oldest, rs.Latest, version)
	}
	return nil
}

// The settings that belong to the replicas alone. Their values are versions of the rules in decimal.
const (
	rulesKey     = "rules"  // that of the cluster
	reportPrefix = "rules/" // with the id of a member in hexadecimal: the latest one that its program has
)

func reportKey(id uint64) string { return reportPrefix + strconv.FormatUint(id, 16) }

func versionText(version uint64) []byte { return strconv.AppendUint(nil, version, 10) }

// versionOf returns the version in the value of a setting; 0 if there is none.
func versionOf(value []byte) uint64 {
	version, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil || string(versionText(version)) != string(value) {
		return 0
	}
	return version
}

// refuseReserved returns why a caller may not change the setting with that key.
func refuseReserved(key string) error {
	if key == rulesKey || strings.HasPrefix(key, reportPrefix) {
		return lockkeeper.Invalid("setting %q belongs to the nodes themselves: it follows from their versions", key)
	}
	return nil
}

// refuseForeign returns why this leader does not make a request of that node.
func (r *Replica) refuseForeign(node uint64, q *request) error {
	switch {
	case q.setting != nil && q.setting.Key != reportKey(node):
		return refuseReserved(q.setting.Key)
	case q.setting == nil:
		return r.config.Rules.check(q.rules)
	}
	return nil
}

// refuseOwn returns why a setting on which the replicas themselves depend can't be put now: all nodes refuse it
// alike, from the settings and the configuration at that position of the log.
func (r *Replica) refuseOwn(s *Setting) error {
	version := versionOf(s.Value)
	switch {
	case s.Key == rulesKey && (version <= r.rules || version > r.reported()):
		return lockkeeper.Invalid("rules %q: the cluster runs under %d, all members have %d", s.Value, r.rules, r.reported())
	case strings.HasPrefix(s.Key, reportPrefix) && len(s.Value) > 0:
		isReport := func(id uint64) bool { return s.Key == reportKey(id) }
		if version < r.rules || !slices.ContainsFunc(r.members(), isReport) {
			return lockkeeper.Invalid("report %q of %q: the cluster runs under rules %d, the members are %d", s.Value, s.Key,
				r.rules, r.members())
		}
	case strings.HasPrefix(s.Key, voters.ExpelledPrefix) && len(s.Value) > 0:
		votes := func(id uint64) bool { return s.Key == voters.ExpelledKey(id) }
		if slices.ContainsFunc(r.conf.GetVoters(), votes) {
			return fmt.Errorf("%w: the voters are %d", ErrVotes, r.conf.GetVoters())
		}
	}
	return nil
}

// members returns the ids of the voters and learners.
func (r *Replica) members() []uint64 { return slices.Concat(r.conf.GetVoters(), r.conf.GetLearners()) }

// reported returns the latest version of the rules that all voters and learners have reported; 0 if
// one has reported none.
func (r *Replica) reported() uint64 {
	var versions []uint64
	for _, id := range r.members() {
		versions = append(versions, versionOf(r.settings.get(reportKey(id)).Value))
	}
	if len(versions) == 0 {
		return 0
	}
	return slices.Min(versions)
}

// forgetReport returns the removal of the report of a node that a change has removed; nothing if
// there is none.
func (r *Replica) forgetReport(c *pb.ConfChange) []Setting {
	report := r.settings.get(reportKey(c.GetNodeId()))
	if c.GetType() != pb.ConfChangeRemoveNode || len(report.Value) == 0 {
		return nil
	}
	report.Value = nil
	return []Setting{report}
}

// reportRules reports the rules of this program, if the cluster has another report of this node.
func (r *Replica) reportRules() {
	if r.failed != nil || r.report != 0 || r.rules == 0 || !slices.Contains(r.members(), r.config.ID) ||
		len(r.calls.pending) >= r.config.MaxQueued {
		return
	}
	report := r.settings.get(reportKey(r.config.ID))
	if versionOf(report.Value) == r.config.Rules.Latest {
		return
	}
	report.Value = versionText(r.config.Rules.Latest)
	r.report = r.calls.last + 1 // its answer may come before admit returns
	r.admit(&request{setting: &report}, nil)
}

// raiseRules lets the leader propose the latest rules that all members have.
func (r *Replica) raiseRules() {
	if !r.lead.ready {
		return
	}
	to := r.reported()
	isOwn := func(q queued) bool { return q.origin.node == raft.None }
	if to <= r.rules || slices.ContainsFunc(r.lead.queue, isOwn) {
		return
	}
	s := r.settings.get(rulesKey)
	s.Value = versionText(to)
	r.lead.queue = append(r.lead.queue, queued{request: request{setting: &s}})
}

// writtenUnder returns the version of the rules that this node writes calls under.
func (r *Replica) writtenUnder() uint64 {
	if r.rules == 0 {
		return r.config.Rules.Oldest
	}
	return r.rules
}
