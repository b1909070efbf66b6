package quorumlock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
)

// The methods of this file change the cluster for its operator, at any of its nodes. They may be
// repeated after any error. ErrInvalid says what is wrong with the request; after ErrUnavailable it
// is unknown whether the change was made.

// DefaultTokenLife is how long a token can be used if its maker says nothing else.
const DefaultTokenLife = join.DefaultTokenLife

// CreateToken makes a token that admits one new node within life, 1 minute to 7 days. A new node asks
// the addresses of all nodes, and 16 at most.
func (e *Engine) CreateToken(ctx context.Context, life time.Duration) (Token, error) {
	if _, err := e.Settings().Read(ctx); err != nil { // there is contact with a leader then
		return Token{}, err
	}
	if err := e.correctAddresses(ctx); err != nil { // a node that was just opened may not have done that yet
		return Token{}, err
	}
	nodes, err := join.Nodes(e.Settings().Known())
	if err != nil {
		return Token{}, err
	}
	var addresses []string
	for i := range min(len(nodes), join.MaxAddresses) {
		addresses = append(addresses, nodes[i].Address.String())
	}
	return join.CreateToken(ctx, e.Settings(), e.host.keys, life, addresses)
}

// WithdrawToken removes the token with that name; see TokenStatus.
func (e *Engine) WithdrawToken(ctx context.Context, id string) error {
	return join.WithdrawToken(ctx, e.Settings(), id)
}

// SetRank changes the rank of a node. The leader changes voters and leader by the new ranks, one change
// a second at most, and only if the cluster stays able to commit.
func (e *Engine) SetRank(ctx context.Context, node string, rank Rank) error {
	if rank > RankOff {
		return lockkeeper.Invalid("rank %d: it is 0 to %d, or off", rank, voters.RatherNot)
	}
	return e.changeMember(ctx, node, 0, func(n *join.Node) error {
		n.Rank = rank
		return nil
	})
}

// SetVoters changes how many nodes should vote: 1, 3 or 5. With fewer nodes, the largest odd number of
// them votes.
func (e *Engine) SetVoters(ctx context.Context, number int) error {
	if err := (voters.Policy{Voters: number, Grace: voterGrace}).Check(); err != nil {
		return lockkeeper.Invalid("%s", err)
	}
	text := strconv.AppendInt(nil, int64(number), 10)
	return e.change(ctx, votersKey, func(join.View) ([]byte, error) { return text, nil })
}

// reaches reports whether this node has a connection to another one.
func (h *host) reaches(id uint64) bool { return h.silent(id) == 0 }

// transferKey is the setting with a transfer of the leadership that an operator wants.
const transferKey = "transfer"

// transferTime bounds a wish to transfer, in the time of the table.
const transferTime = 10 * time.Second

// A transfer is a wish that a node should lead. The leader fulfils it if it can before Ends.
type transfer struct {
	To   uint64        `json:"to,string"`
	Ends time.Duration `json:"ends"` // in the time of the table
}

// Transfer lets a node lead, and returns when it does. The node must be a voter that this node reaches and
// that is caught up; and have rank 0 if another such voter has rank 0, for that one would lead again at once.
// It gives up after little more than 10 s. If ctx ends before, the leader may still change within 10 s.
func (e *Engine) Transfer(ctx context.Context, node string) error {
	var to uint64
	var wish []byte
	err := e.change(ctx, transferKey, func(v join.View) ([]byte, error) {
		n, err := existingMember(v, node)
		if err == nil {
			err = e.mayLead(v, &n)
		}
		to = n.ID
		wish, _ = json.Marshal(transfer{To: n.ID, Ends: v.Now() + transferTime})
		return wish, err
	})
	if err != nil {
		return err
	}
	late := fmt.Errorf("node %q does not lead yet: it has not caught up, or the leader does not reach it", node)
	ctx, cancel := context.WithTimeoutCause(ctx, transferTime+electionTicks*tickTime, late)
	defer cancel()
	if _, err = e.node.Await(ctx, func(s replica.Status) bool { return s.Leader == to }); err != nil {
		return err
	}
	// Removed early, the wish can't make a later leader yield. If this fails, Ends does that. Another operator may
	// wish something else by now.
	_ = e.change(ctx, transferKey, func(v join.View) ([]byte, error) {
		if now := v.Setting(transferKey).Value; !bytes.Equal(now, wish) {
			return now, nil
		}
		return nil, nil
	})
	return nil
}

// mayLead returns why a node can't lead, or would not stay the leader.
func (e *Engine) mayLead(v join.View, n *join.Node) error {
	if !slices.Contains(e.node.Status().Voters, n.ID) {
		return lockkeeper.Invalid("node %q does not vote now, so it can't lead", n.Name)
	}
	if n.ID != e.host.store.Identity().ID && !e.host.reaches(n.ID) {
		return lockkeeper.Invalid("node %q is not reached, so it can't lead", n.Name)
	}
	if n.Rank == voters.Leads {
		return nil
	}
	nodes, err := join.Nodes(v)
	if err != nil {
		return err
	}
	for i := range nodes {
		if other := &nodes[i]; other.Rank == voters.Leads && slices.Contains(e.node.Status().Voters, other.ID) {
			return lockkeeper.Invalid("node %q has rank 0, so it would lead again at once: change its rank, or give node %q "+
				"rank 0, too", other.Name, n.Name)
		}
	}
	return nil
}

// wished returns the id that should lead as an operator wishes; 0 if nobody wishes now. It implements
// node.Config.Wished.
func wished(r *replica.Replica) uint64 {
	s, t := r.Setting(transferKey), transfer{}
	if len(s.Value) == 0 || json.Unmarshal(s.Value, &t) != nil || r.Time() >= t.Ends {
		return 0
	}
	return t.To
}

// handOver lets another voter lead, if this node leads. It waits for that for an election timeout at
// most: after that the others elect a leader by themselves.
func (e *Engine) handOver() {
	ctx, cancel := context.WithTimeout(context.Background(), electionTicks*tickTime)
	defer cancel()
	to, leads := e.node.Successor()
	if !leads || to == 0 {
		return
	}
	e.node.Transfer(to)
	_, _ = e.node.Await(ctx, func(s replica.Status) bool { return s.Leader != s.ID })
}

// memberOf returns the member with that name; without an id if there is none.
func memberOf(v join.View, name string) (join.Node, error) {
	nodes, err := join.Nodes(v)
	if err != nil {
		return join.Node{}, err
	}
	for i := range nodes {
		if nodes[i].Name == name {
			return nodes[i], nil
		}
	}
	return join.Node{}, nil
}

// existingMember is memberOf, but an ErrInvalid if there is none.
func existingMember(v join.View, name string) (join.Node, error) {
	n, err := memberOf(v, name)
	if err == nil && n.ID == 0 {
		err = noNode(name)
	}
	return n, err
}

func noNode(name string) error { return lockkeeper.Invalid("the cluster has no node %.80q", name) }

// changeMember changes the setting of a member. id must be its id, or 0.
func (e *Engine) changeMember(ctx context.Context, name string, id uint64, change func(*join.Node) error) error {
	return e.change(ctx, nodeKeys+name, func(v join.View) ([]byte, error) {
		n, err := existingMember(v, name)
		if err == nil && id != 0 && n.ID != id {
			err = noNode(name)
		}
		if err == nil {
			err = change(&n)
		}
		if err != nil {
			return nil, err
		}
		return json.Marshal(n)
	})
}

// mostTries bounds how often a change is tried while others change the same setting.
const mostTries = 16

// change gives a setting the value that next returns.
func (e *Engine) change(ctx context.Context, key string, next func(join.View) ([]byte, error)) error {
	settings := e.Settings()
	for range mostTries {
		v, err := settings.Read(ctx)
		if err != nil {
			return err
		}
		s := v.Setting(key)
		if s.Value, err = next(v); err != nil {
			return err
		}
		if err = settings.Put(ctx, s); !errors.Is(err, join.ErrRevision) {
			return err
		}
	}
	return &lockkeeper.Error{
		Err:   lockkeeper.ErrUnavailable,
		Cause: errors.New("others change the same setting of the cluster all the time"),
	}
}
