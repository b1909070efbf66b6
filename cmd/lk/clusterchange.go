package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock"
)

// A nodeChange is what an operator wants of a node.
type nodeChange struct {
	Node string          `json:"node"`
	Note string          `json:"note,omitempty"`
	Rank quorumlock.Rank `json:"rank,omitempty"`
}

func (a *app) newClusterRemove(o *clusterOptions) *cobra.Command {
	var change nodeChange
	cmd := &cobra.Command{
		Use:        "remove NODE",
		SuggestFor: []string{"rm", "delete", "expel", "evict", "kick", "leave"},
		Short:      "Expel a node for good",
		Long: `Expel a node: it is gone, or its disk is lost or stolen. All nodes refuse its connections
from then on, also those of a backup of its folder; its name is free again.

The node gets the rank off. The leader takes its vote, and gives it to another node if there
is one; then the node is expelled. A removal that would leave no majority of the voters is
refused, or ends after 20 s with the node still there.

Nothing takes an expulsion back. The machine can join again as a new node: empty its folder,
and use a new token.`,
		Example: `  # a machine that is gone
  lk cluster remove three --note "its disk is broken"

  # and one in its place
  lk cluster token --out token`,
		Args: a.checkedAlone(func(_ *cobra.Command, args []string) { a.oneNode(args, &change.Node) }),
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			change.Note = cmp.Or(change.Note, "removed by "+userAtHost())
			if err := o.ask(cmd.Context(), removeVerb, change, nil); err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "lk: node %q is expelled; stop its server, if it still runs\n", change.Node)
			return nil
		}),
	}
	cmd.Flags().StringVar(&change.Note, "note", "", "`WHY`, for people")
	return cmd
}

func (a *app) newClusterTransfer(o *clusterOptions) *cobra.Command {
	var change nodeChange
	cmd := &cobra.Command{
		Use:        "transfer NODE",
		SuggestFor: []string{"lead", "leader", "step-down", "stepdown", "promote", "move-leader"},
		Short:      "Make another voter lead",
		Long: `Make another voter lead, such as before the leader's machine is restarted. No lock is lost,
and calls wait for a moment. Which node leads does not matter to clients.`,
		Example: `  # who leads?
  lk cluster ls

  # the machine of the leader is to be restarted
  lk cluster transfer two`,
		Args: a.checkedAlone(func(_ *cobra.Command, args []string) { a.oneNode(args, &change.Node) }),
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			if err := o.ask(cmd.Context(), transferVerb, change, nil); err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "lk: node %q leads\n", change.Node)
			return nil
		}),
	}
	return cmd
}

func (a *app) newClusterRank(o *clusterOptions) *cobra.Command {
	var change nodeChange
	cmd := &cobra.Command{
		Use:        "rank NODE RANK",
		SuggestFor: []string{"priority", "weight"},
		Short:      "Say how much a node should vote and lead",
		Long: `Set the rank of a node:

  0        votes, and leads whenever it can
  1 to 15  votes, the lower the sooner; 15 only if there are too few others
  off      never votes; it answers clients as every node does

A voter stays one while it is well, though a node of a better rank comes: each change costs
safety for a moment. Off takes the vote at once, if another node can have it.`,
		Example: `  # a machine with much other work
  lk cluster rank database1 off

  # the one that should lead
  lk cluster rank one 0`,
		Args: a.checkedAlone(func(_ *cobra.Command, args []string) {
			if len(args) != 2 {
				a.bad.addf("%s: name a node and its rank, as in: lk cluster rank one 0", plural(len(args), "argument"))
				return
			}
			var err error
			change.Node = args[0]
			change.Rank, err = quorumlock.ParseRank(args[1])
			a.bad.add(err)
		}),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.clusterRank(cmd.Context(), o, change) }),
	}
	return cmd
}

func (a *app) clusterRank(ctx context.Context, o *clusterOptions, change nodeChange) error {
	if err := o.ask(ctx, rankVerb, change, nil); err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "lk: node %q has rank %s\n", change.Node, change.Rank)
	return nil
}

func (a *app) newClusterVoters(o *clusterOptions) *cobra.Command {
	var n int
	return &cobra.Command{
		Use:        "voters {1 | 3 | 5}",
		SuggestFor: []string{"size", "replicas", "quorum"},
		Short:      "Say how many nodes should vote",
		Long: `Set how many nodes should vote: 3 by default. Of three voters one may be lost at a time, of
five two. Each claim waits until a majority of them has it on disk, so five cost more. With
fewer nodes, the largest odd number of them votes.`,
		Example: `  # two nodes may be lost at a time
  lk cluster voters 5

  # one may, as by default
  lk cluster voters 3`,
		Args: a.checkedAlone(func(_ *cobra.Command, args []string) {
			var err error
			if len(args) == 1 {
				n, err = strconv.Atoi(args[0])
			}
			if len(args) != 1 || err != nil || n != 1 && n != 3 && n != 5 {
				a.bad.addf("say how many nodes should vote: 1, 3 or 5")
			}
		}),
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			if err := o.ask(cmd.Context(), votersVerb, n, nil); err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "lk: %s should vote; lk cluster ls shows who does\n", plural(n, "node"))
			return nil
		}),
	}
}
