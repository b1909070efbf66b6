package quorumlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
)

// ErrKeepsMajority is the cause of a refusal to remove a node without which the cluster would stop.
var ErrKeepsMajority = errors.New("without that node, the voters that this node reaches are no majority: first bring " +
	"others back, or give that node the rank off and wait until others vote instead")

// removingKey is the setting with the id of the node whose removal began last. Removals win it one after the
// other, so no two of them count each other's node as one that stays.
//
//	removing = id ──> expelled/id ──> the leader takes the vote of id ──> another node may be removed
const removingKey = "removing"

// voteEnds is how long Remove waits until the removed node has no vote any more.
const voteEnds = 5 * time.Second

// Remove expels a node forever: because it is removed, or because its disk is lost, as reason says. Its
// name is free from then on, and its id is never let in again. Other nodes talk to it no more, at
// once. A node that votes and that others can replace should get RankOff first. If the rest of the
// voters, as far as this node reaches them, is no majority, the error is an ErrInvalid with the cause
// ErrKeepsMajority. While the node of an earlier Remove still votes, it is another ErrInvalid. Remove
// returns when the node votes no more, or 5 s later.
func (e *Engine) Remove(ctx context.Context, node, reason string) error {
	var id uint64
	err := e.change(ctx, removingKey, func(v join.View) ([]byte, error) {
		n, err := existingMember(v, node)
		if err == nil {
			id, err = n.ID, e.remains(v, n.ID)
		}
		return []byte(join.FormatID(id)), err
	})
	if err == nil {
		err = join.Expel(ctx, e.Settings(), id, reason)
	}
	if err == nil && id != e.host.store.Identity().ID { // this node would hear no more
		ctx, cancel := context.WithTimeout(ctx, voteEnds)
		defer cancel()
		_, _ = e.node.Await(ctx, func(s replica.Status) bool { return !slices.Contains(s.Voters, id) })
	}
	return err
}

// remains returns an error if the voters but one are no majority, as far as this node reaches them, or may
// become none by another removal.
func (e *Engine) remains(v join.View, without uint64) error {
	s, live, before := e.node.Status(), 0, string(v.Setting(removingKey).Value)
	for _, id := range s.Voters {
		hex := join.FormatID(id)
		if id != without && hex == before {
			return lockkeeper.Invalid("the removal of node %s has begun, and it still votes: wait a few seconds; if it votes "+
				"then, finish that removal first, or give it the rank off", hex)
		}
		expelled := len(v.Setting(expelledKeys+hex).Value) > 0
		if id != without && !expelled && (id == s.ID || e.host.reaches(id)) {
			live++
		}
	}
	if live > len(s.Voters)/2 || !slices.Contains(s.Voters, without) {
		return nil
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrInvalid, Cause: ErrKeepsMajority}
}
