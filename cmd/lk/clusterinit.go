package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/engine/disklock"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/control"
)

func (a *app) newClusterInit(o *clusterOptions) *cobra.Command {
	n := &nodeFlags{}
	var c quorumlock.Config
	var server string
	cmd := &cobra.Command{
		Use:        "init",
		SuggestFor: []string{"create", "new", "bootstrap", "found"},
		Short:      "Make the folder of the first node of a new cluster",
		Long: `Make the folder of the first node of a new cluster: with a certificate authority for the
nodes, the node's key, and an empty log. lk serve then runs the node. A folder that has a
node already is refused.

With --import the cluster goes on with the locks of a server that has kept them in a
directory: stop it first. Holders, waiters and fences stay. The directory can't be served any
more. If lk is killed meanwhile, run the same command again.

The folder has the keys of the whole cluster, as that of every node: keep it to the user of
the server. docs/engines/cluster-certificates.md says more.`,
		Example: `  # the first node, on a machine that others reach as 10.0.0.1
  lk cluster init --peers 10.0.0.1
  lk serve --listen 10.0.0.1:7420 --tokens tokens --tls-cert server.pem --tls-key server-key.pem

  # in a folder of its own, under a name
  lk cluster init --data /var/lib/lockkeeper --name one --peers 10.0.0.1:7430

  # with the locks of the server that ran here with --data /srv/locks
  lk cluster init --import /srv/locks --peers 10.0.0.1`,
		Args: a.checkedAlone(func(_ *cobra.Command, args []string) {
			if len(args) > 0 {
				a.bad.addf("%s: lk cluster init takes none; --data names the folder", plural(len(args), "argument"))
			}
			if n.peers == "" {
				a.bad.add(errNoPeers)
			}
			c = n.config(a)
		}),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.clusterInit(cmd.Context(), o, c, server) }),
	}
	n.add(cmd.Flags(), "the first node")
	cmd.Flags().StringVar(&server, "import", "", "go on with the locks in `DIR`, the --data of a server that was stopped")
	return cmd
}

// clusterInit makes the first node of a cluster, with the locks of the server in that directory, unless it
// is empty.
func (a *app) clusterInit(ctx context.Context, o *clusterOptions, c quorumlock.Config, server string) error {
	folder, err := o.folder()
	if err != nil {
		return err
	}
	if err := control.CheckFolder(folder); err != nil {
		return err
	}
	c.Name = cmp.Or(c.Name, defaultNodeName())
	var from quorumlock.Source
	if server != "" {
		if same, err := filepath.Abs(server); err != nil || same == folder {
			return &exit{code: exitUsage, say: fmt.Errorf("--import %s: the node needs another folder: name it by --data",
				server)}
		}
		move, err := disklock.BeginMove(ctx, server)
		if err != nil {
			return err
		}
		defer move.Close()
		from = move
	}
	if err := quorumlock.Found(folder, c, from); err != nil {
		return err
	}
	a.sayFirstNode(o, folder, &c)
	return nil
}
