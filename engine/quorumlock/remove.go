package quorumlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
)

// ErrKeepsMajority is the cause of a refusal to remove a node without which the cluster would stop.
var ErrKeepsMajority = errors.New("without that node, the voters that this node reaches are no majority: first bring " +
	"others back, or give that node the rank off and wait until others vote instead")

// voteEnds is how long Remove waits until the leader has taken the vote of the node.
const voteEnds = 20 * time.Second

// Remove expels a node forever: because it is removed, or because its disk is lost, as reason says. Its
// name is free from then on, its id is never let in again, and other nodes talk to it no more.
//
//	rank off ── the leader finds a majority without it ──> votes no more ──> expelled ──> outside
//
// A node that votes loses its vote first: the leader makes the changes of voters one after the other, and only if a
// majority remains that stores the log. All nodes refuse to expel one that votes. So no removals at once, and no
// change of voters meanwhile, can take the majority away. If the rest of the voters, as far as this node reaches
// them, is no majority, the error is an ErrInvalid with the cause ErrKeepsMajority, and nothing has changed. If the
// node still votes after 20 s, the error is an ErrUnavailable, and the node has the rank off.
func (e *Engine) Remove(ctx context.Context, node, reason string) error {
	if err := join.CheckReason(reason); err != nil {
		return err
	}
	v, err := e.Settings().Read(ctx)
	if err != nil {
		return err
	}
	n, err := existingMember(v, node)
	if err != nil {
		return err
	}
	if err := e.remains(n.ID); err != nil {
		return err
	}
	votes := fmt.Errorf("node %q has the rank off now, and still votes: its vote is taken when the other voters are a "+
		"majority that stores the log; remove it again then, or give it its rank back", node)
	waits, cancel := context.WithTimeoutCause(ctx, voteEnds, votes)
	defer cancel()
	for {
		if err := e.takeVote(waits, &n); err != nil {
			return err
		}
		if err := join.Expel(waits, e.Settings(), n.ID, reason); !errors.Is(err, join.ErrVotes) {
			return err
		}
	}
}

// takeVote returns when a node does not vote, as far as this node knows.
func (e *Engine) takeVote(ctx context.Context, n *join.Node) error {
	votes := func(s replica.Status) bool { return slices.Contains(s.Voters, n.ID) }
	if !votes(e.node.Status()) {
		return nil
	}
	err := e.changeMember(ctx, n.Name, n.ID, func(n *join.Node) error {
		n.Rank = voters.Off
		return nil
	})
	if err == nil {
		_, err = e.node.Await(ctx, func(s replica.Status) bool { return !votes(s) })
	}
	return err
}

// remains returns an error if the voters but one are no majority, as far as this node reaches them.
func (e *Engine) remains(without uint64) error {
	s, live := e.node.Status(), 0
	for _, id := range s.Voters {
		if id != without && (id == s.ID || e.host.reaches(id)) {
			live++
		}
	}
	if live > len(s.Voters)/2 || !slices.Contains(s.Voters, without) {
		return nil
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrInvalid, Cause: ErrKeepsMajority}
}
