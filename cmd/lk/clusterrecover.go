package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/control"
)

// recoverOptions are the arguments of lk cluster recover.
type recoverOptions struct {
	*clusterOptions
	nodeFlags
	to     string
	sure   bool
	config quorumlock.Config
}

func (a *app) newClusterRecover(c *clusterOptions) *cobra.Command {
	o := &recoverOptions{clusterOptions: c}
	cmd := &cobra.Command{
		Use:        "recover",
		SuggestFor: []string{"restore", "reset", "force-new-cluster"},
		Short:      "Make a new cluster of one node of a lost one",
		Long: `Make a new cluster out of the folder of one node, after a majority of the voters is lost for
good, with their disks. A cluster whose nodes come back needs no recovery: start them.

What only the lost nodes had is lost. Without --yes, lk cluster recover prints what that may
be, and changes nothing. Choose the folder with the highest change. With --yes, it makes the
folder --to, whose node goes on with the locks, and the old folder can't be used any more.
If it is cut short, repeat it.

Stop the server of the folder first. The other nodes must never start again with their
folders: empty them, and let them join the new cluster.`,
		Example: `  # what would be lost?
  lk cluster recover --data /var/lib/lockkeeper

  # go on with it
  lk cluster recover --data /var/lib/lockkeeper --to /var/lib/lockkeeper2 --peers 10.0.0.1 --yes
  lk serve --data /var/lib/lockkeeper2 --listen 10.0.0.1:7420 --insecure`,
		Args: a.checkedAlone(func(_ *cobra.Command, args []string) { o.check(a, args) }),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.clusterRecover(cmd.Context(), o) }),
	}
	o.add(cmd.Flags(), "the node")
	cmd.Flags().StringVar(&o.to, "to", "", "`DIR` of the new node, which is made")
	cmd.Flags().BoolVar(&o.sure, "yes", false, "make the new cluster, and the old folder useless")
	return cmd
}

func (o *recoverOptions) check(a *app, args []string) {
	if len(args) > 0 {
		a.bad.addf("%s: lk cluster recover takes none; --data names the folder", plural(len(args), "argument"))
	}
	if o.sure && o.to == "" {
		a.bad.addf("--to is missing: name the folder of the new node, which is made")
	}
	if o.sure && o.peers == "" {
		a.bad.add(errNoPeers)
	}
	o.config = o.nodeFlags.config(a)
}

func (a *app) clusterRecover(ctx context.Context, o *recoverOptions) error {
	from, err := o.folder()
	if err != nil {
		return err
	}
	if !o.sure {
		report, err := quorumlock.Examine(ctx, from)
		if err != nil {
			return err
		}
		fmt.Fprint(a.stdout, report)
		const unchanged = "nothing is changed: add --yes, --to DIR and --peers ADDR to go on with this node"
		if o.to == "" { // the report is all that was asked for
			a.noteText(unchanged)
			return nil
		}
		return &exit{code: exitUsage, say: errors.New(unchanged)}
	}
	to, err := filepath.Abs(o.to)
	if err != nil {
		return err
	}
	if err := control.CheckFolder(to); err != nil {
		return err
	}
	o.config.Name = cmp.Or(o.config.Name, defaultNodeName())
	report, err := quorumlock.Recover(ctx, from, to, o.config)
	if err != nil {
		return err
	}
	fmt.Fprint(a.stdout, report)
	a.sayFirstNode(o.clusterOptions, to, &o.config)
	return nil
}
