package quorumlock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/node"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
	"github.com/lockkeeper/lockkeeper/table"
)

const (
	votersKey     = "voters"    // the setting with the number of voters: 1, 3 or 5
	nodeKeys      = "node/"     // the prefix of the settings of nodes, see package join
	voterGrace    = time.Minute // a voter that is silent for longer is replaced
	defaultVoters = voters.DefaultVoters
)

// members returns the function node.Config.Members by the cluster's settings: nodes, expelled ids and
// the number of voters. silent returns for how long a node outside the configuration has not
// answered this node; 0 if it answers.
func members(silent func(id uint64) time.Duration) func(*replica.Replica) (voters.Policy, []voters.Member, error) {
	return func(r *replica.Replica) (voters.Policy, []voters.Member, error) {
		v := viewOf(r)
		policy, err := policyOf(v)
		if err != nil {
			return policy, nil, err
		}
		nodes, err := join.Nodes(v)
		if err != nil {
			return policy, nil, err
		}
		var all []voters.Member
		for i := range nodes {
			all = append(all, voters.Member{ID: nodes[i].ID, Node: nodes[i].Voter(), Silent: silent(nodes[i].ID)})
		}
		for _, s := range v.Settings(voters.ExpelledPrefix) {
			id, err := join.ParseID(strings.TrimPrefix(s.Key, voters.ExpelledPrefix))
			if err != nil {
				return policy, nil, fmt.Errorf("the cluster's setting %s: %w", s.Key, err)
			}
			all = append(all, voters.Member{ID: id, Node: voters.Node{Rank: voters.Off}, Retired: true})
		}
		return policy, all, nil
	}
}

func policyOf(v join.View) (voters.Policy, error) {
	p := voters.Policy{Voters: defaultVoters, Grace: voterGrace}
	if s := v.Setting(votersKey); len(s.Value) > 0 {
		if _, err := fmt.Sscanf(string(s.Value), "%d", &p.Voters); err != nil {
			return p, fmt.Errorf("the cluster's setting %s is %q: %w", s.Key, s.Value, err)
		}
	}
	return p, p.Check()
}

// view is a join.View that does not change.
type view struct {
	now    time.Duration
	sorted []join.Setting // by key
	absent uint64         // the revision of every setting that is not there
}

// viewOf returns the settings as the replica has them now.
func viewOf(r *replica.Replica) *view {
	return newView(r.Time(), r.Setting("").Revision, r.Settings("")) // no setting has an empty key
}

// newView returns a view of settings that are in the order of their keys.
func newView(now time.Duration, absent uint64, settings []replica.Setting) *view {
	v := &view{now: now, absent: absent}
	for _, s := range settings {
		v.sorted = append(v.sorted, join.Setting(s))
	}
	return v
}

// Now implements join.View.
func (v *view) Now() time.Duration { return v.now }

// Setting implements join.View.
func (v *view) Setting(key string) join.Setting {
	if at, there := v.find(key); there {
		return v.sorted[at]
	}
	return join.Setting{Key: key, Revision: v.absent}
}

// Settings implements join.View.
func (v *view) Settings(prefix string) []join.Setting {
	from, _ := v.find(prefix)
	to := from
	for to < len(v.sorted) && strings.HasPrefix(v.sorted[to].Key, prefix) {
		to++
	}
	return slices.Clone(v.sorted[from:to])
}

func (v *view) find(key string) (at int, there bool) {
	return slices.BinarySearchFunc(v.sorted, key, func(s join.Setting, key string) int {
		return strings.Compare(s.Key, key)
	})
}

// Settings are the cluster's settings through one of its nodes.
type Settings struct{ node *node.Node }

var _ join.Settings = Settings{}

// Settings returns the cluster's settings.
func (e *Engine) Settings() Settings { return Settings{e.node} }

// Read implements join.Settings. It makes a call, not a read: while nothing falls due, only calls bring
// the leader's time to the tables.
func (s Settings) Read(ctx context.Context) (join.View, error) {
	if err := pass(ctx, s.node); err != nil {
		return nil, err
	}
	return s.Known(), nil
}

// pass makes a call through the log that changes nothing but the time of the tables: it renews the session with an
// empty id, which no session has. It returns nil if the table has said so.
func pass(ctx context.Context, n *node.Node) (err error) {
	for range mostTries {
		_, err = n.Call(ctx, replica.Caller{}, table.Command{Op: table.Renew}, nil)
		if errors.Is(err, lockkeeper.ErrSession) {
			return nil
		}
		if !errors.Is(err, replica.ErrUnknown) || ctx.Err() != nil {
			break // else the leader has changed, or this node was given the whole state
		}
	}
	return err
}

// Known returns the settings as this node has them now.
func (s Settings) Known() join.View {
	var v *view
	s.node.Look(func(r *replica.Replica) { v = viewOf(r) })
	return v
}

// Put implements join.Settings. If the outcome of a try is unknown, it looks and tries again: each try
// expects the same revision, so only one of them can change the setting.
func (s Settings) Put(ctx context.Context, setting join.Setting) (err error) {
	for range mostTries {
		_, err = s.node.Put(ctx, replica.Setting(setting))
		if !errors.Is(err, replica.ErrUnknown) || ctx.Err() != nil {
			break
		}
		v, unread := s.Read(ctx)
		if unread != nil {
			return unread
		}
		switch now := v.Setting(setting.Key); {
		case now.Revision == setting.Revision:
		case bytes.Equal(now.Value, setting.Value):
			return nil
		default:
			return join.ErrRevision
		}
	}
	switch {
	case errors.Is(err, replica.ErrRevision):
		return join.ErrRevision
	case errors.Is(err, replica.ErrFull):
		return join.ErrFull
	case errors.Is(err, replica.ErrVotes):
		return join.ErrVotes
	}
	return err
}
