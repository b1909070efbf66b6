package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

func (a *app) newClusterLs(o *clusterOptions) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:        "ls",
		SuggestFor: []string{"list", "status", "show", "members", "info"},
		Short:      "List the nodes, and say whether locks are granted",
		Long: `Print the cluster as the node on this machine knows it: the state of that node, its nodes
with their roles, and what an operator has to act on. It waits for nobody, so it also
answers while no quorum is there.

  starting    the node has had no contact with a leader since its start
  ready       it answers calls
  no quorum   no leader is in contact with it: calls wait, nothing is granted, nothing is lost
  disk stuck  its disk is full, or takes no writes: its clients go to other nodes
  stopped     its disk or its log is damaged, or it needs another version of lk

A leader is the voter that puts calls in order. A voter takes part in every decision. A
learner has all locks and does not vote. Each of them answers clients. A node outside
has not been reached since it joined.`,
		Example: `  # on a machine with a node
  lk cluster ls

  # voters that are not reached
  lk cluster ls --json | jq -r '.nodes[] | select(.role == "voter" and .reached == false).name'`,
		Args: a.takes(0, 0),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.clusterLs(cmd.Context(), o, asJSON) }),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object; durations are in seconds")
	return cmd
}

func (a *app) clusterLs(ctx context.Context, o *clusterOptions, asJSON bool) error {
	var s lockkeeper.ClusterStatus
	if err := o.ask(ctx, statusVerb, nil, &s); err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(a.stdout).Encode(s)
	}
	if o.data != "" {
		for i := range s.Alarms { // remedies end with the command, which needs the folder, too
			if strings.Contains(s.Alarms[i].Remedy, "lk cluster ") {
				s.Alarms[i].Remedy += " --data " + o.data
			}
		}
	}
	return drawCluster(a.stdout, &s)
}

// drawCluster writes the cluster for people.
func drawCluster(to io.Writer, s *lockkeeper.ClusterStatus) error {
	fmt.Fprintf(to, "%s\n", clusterLine(s))
	if err := drawNodes(to, s); err != nil {
		return err
	}
	for _, a := range s.Alarms {
		fmt.Fprintf(to, "alarm: %s\n       %s\n", a.Text, a.Remedy)
	}
	return nil
}

// drawNodes writes a table of the nodes.
func drawNodes(to io.Writer, s *lockkeeper.ClusterStatus) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		clients := n.Clients
		if clients == "" {
			clients = "no clients"
		}
		fmt.Fprintf(w, "%s\t%s\trank %s\t%s\t%s\t%s\n", n.Name, roleText(n), n.Rank, reachText(n, s.Node), n.Address, clients)
	}
	return w.Flush()
}

// clusterLine is the state of the cluster in a line.
func clusterLine(s *lockkeeper.ClusterStatus) string {
	text := string(s.State)
	if s.Since > 0 {
		text += " for " + duration.Elapsed(s.Since)
	}
	if s.Failed != "" {
		return fmt.Sprintf("%s: %s", text, s.Failed)
	}
	text += fmt.Sprintf(": %s reached, %d needed", plural(s.Live, "voter"), s.Majority)
	if s.Leader == "" {
		text += "; none leads"
	} else {
		text += fmt.Sprintf("; %s leads", s.Leader)
	}
	return fmt.Sprintf("%s, in term %d; this is %s, at change %d", text, s.Term, s.Node, s.Applied)
}

func roleText(n *lockkeeper.NodeStatus) string {
	if n.Leads {
		return "leader"
	}
	return string(n.Role)
}

func reachText(n *lockkeeper.NodeStatus, own string) string {
	switch {
	case n.Name == own:
		return "this node"
	case n.Reached:
		return "reached"
	}
	return "not reached for " + duration.Elapsed(n.Silent)
}
