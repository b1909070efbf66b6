package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/control"
)

// peerPort is the default port of a node for other nodes.
const peerPort = 7430

// clusterOptions are the arguments that all verbs of lk cluster share.
type clusterOptions struct {
	data string // the folder of a node on this machine
}

func (a *app) newCluster() *cobra.Command {
	o := &clusterOptions{}
	cmd := &cobra.Command{
		Use:        "cluster",
		SuggestFor: []string{"nodes", "node", "join", "raft", "members"},
		Short:      "Make a cluster of servers, and operate it",
		Long: `Make several servers keep the same locks, and operate them. Any of them answers any
client. Locks are granted while a majority of the voters lives and reaches each other:
three by default, so that one may be lost, however many nodes there are.

Each server is a node, with a folder of its own. lk cluster init makes the folder of the
first one. For each other one, lk cluster token prints a token, and lk serve --join FILE
makes the folder and joins.

All verbs but init and recover ask the server that runs on the folder, over a socket in it.
So they work on a machine with a node, for the user of its server. A user who can read the folder
has the keys of the cluster: there is no remote access to these verbs.`,
		Example: `  # on the first machine
  lk cluster init --peers 10.0.0.1
  lk serve --listen 10.0.0.1:7420 --insecure
  lk cluster token --out token

  # on another one, after the file token was copied there
  lk serve --join token --peers 10.0.0.2 --listen 10.0.0.2:7420 --insecure

  # how is it?
  lk cluster ls`,
		Args: a.checkedAlone(func(cmd *cobra.Command, args []string) {
			if len(args) > 0 {
				a.bad.addf("unknown command %q for lk cluster: there are init, token, ls, remove, transfer, rank, voters, policy, "+
					"recover",
					args[0])
			}
		}),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&o.data, "data", "", "`DIR` of the node on this machine (default $"+serveVariables+
		"DATA, else cluster beside the default --data of lk serve)")
	cmd.AddCommand(a.newClusterInit(o), a.newClusterToken(o), a.newClusterLs(o), a.newClusterRemove(o),
		a.newClusterTransfer(o), a.newClusterRank(o), a.newClusterVoters(o), a.newClusterPolicy(o),
		a.newClusterRecover(o))
	return cmd
}

// folder returns the folder of the node.
func (o *clusterOptions) folder() (string, error) {
	if named := cmp.Or(o.data, os.Getenv(serveVariables+"DATA")); named != "" {
		return filepath.Abs(named)
	}
	return defaultNodeFolder()
}

// defaultNodeFolder is the folder of the node of a user who names none.
func defaultNodeFolder() (string, error) {
	folder, err := stateFolder()
	return filepath.Join(folder, "cluster"), err
}

// ask asks the server that runs on the folder.
func (o *clusterOptions) ask(ctx context.Context, verb string, arguments, result any) error {
	folder, err := o.folder()
	if err != nil {
		return err
	}
	err = control.Call(ctx, folder, verb, arguments, result)
	if errors.Is(err, control.ErrNoServer) && !quorumlock.HasNode(folder) {
		return &exit{code: exitUsage, say: fmt.Errorf("%s has no node of a cluster: --data names the folder of one; lk "+
			"cluster init makes the first node of a new cluster, lk serve --join another one", folder)}
	}
	return err
}

// nodeFlags are the flags about a node that lk cluster init and lk serve share.
type nodeFlags struct {
	name      string
	peers     string
	advertise string
	rank      string
}

func (n *nodeFlags) add(f *pflag.FlagSet, which string) {
	f.StringVar(&n.name, "name", "", "`NAME` of "+which+
		", unique in the cluster (default: this machine's name)")
	f.StringVar(&n.peers, "peers", "", fmt.Sprintf("`ADDR` of this machine at which other nodes reach "+which+
		", as HOST:PORT; "+
		"the port is %d if left out", peerPort))
	f.StringVar(&n.advertise, "advertise", "", "`ADDR` at which other nodes reach "+which+
		", if --peers is only where it listens")
	f.StringVar(&n.rank, "rank", "", "`RANK` of "+which+
		": 0 leads whenever it can, 1 to 15 votes, the lower the sooner, off "+
		"never votes (default 8)")
}

// config returns the flags as the engine takes them, and collects what is wrong with them.
func (n *nodeFlags) config(a *app) (c quorumlock.Config) {
	c.Name, c.Rank = n.name, quorumlock.DefaultRank
	c.Listen = n.address(a, "--peers", n.peers, true)
	c.Advertise = n.address(a, "--advertise", n.advertise, false)
	if n.rank != "" {
		rank, err := quorumlock.ParseRank(n.rank)
		if err != nil {
			a.bad.addf("--rank: %s", err)
		}
		c.Rank = rank
	}
	return c
}

// address reads HOST:PORT or HOST. Only an address to listen on may stand for all addresses.
func (n *nodeFlags) address(a *app, flag, text string, listens bool) string {
	if text == "" {
		return ""
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), strconv.Itoa(peerPort)
	}
	ip, err := netip.ParseAddr(host)
	number, wrong := strconv.ParseUint(port, 10, 16)
	switch {
	case host == "" && listens:
	case err != nil:
		a.bad.addf("%s %q: write the IP address of this machine in the network of the nodes, such as 10.0.0.1:%d", flag,
			text, peerPort)
		return ""
	case !listens && ip.IsUnspecified():
		a.bad.addf("%s %q: other nodes can't reach that: write an IP address of this machine, such as 10.0.0.1:%d", flag,
			text, peerPort)
		return ""
	}
	if wrong != nil || number == 0 && !listens {
		a.bad.addf("%s %q: the port is a number from 1 to 65535", flag, text)
		return ""
	}
	if (host == "" || ip.IsUnspecified()) && n.advertise == "" {
		a.bad.addf("%s %q is every address of this machine: name the one at which other nodes reach it, by --advertise",
			flag, text)
	}
	return net.JoinHostPort(host, port)
}

// defaultNodeName is the name of a node whose operator names none: that of the machine, without the domain.
func defaultNodeName() string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(strings.ToLower(host), ".")
	return name
}

// errNoPeers is the problem of a new node without an address.
var errNoPeers = fmt.Errorf("--peers is missing: name the IP address of this machine in the network of the nodes, "+
	"such "+
	"as 10.0.0.1, or 127.0.0.1:%d for a try on one machine", peerPort)

// oneNode reads the name of a node, the one argument.
func (a *app) oneNode(args []string, to *string) {
	if len(args) != 1 {
		a.bad.addf("%s: name one node, as lk cluster ls prints it", plural(len(args), "node"))
		return
	}
	*to = args[0]
}
