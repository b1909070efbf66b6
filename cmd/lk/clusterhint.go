package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// sayFirstNode says that the folder has the first node of a new cluster, and prints the command that runs
// it. If nodes of other machines can reach the node, the command lets clients of other machines reach it.
func (a *app) sayFirstNode(o *clusterOptions, folder string, c *quorumlock.Config) {
	fmt.Fprintf(a.stderr, "lk: %s has the first node of a new cluster, %q\n", folder, c.Name)
	run := "lk serve" + o.dataFlag(folder)
	host, _, _ := net.SplitHostPort(c.Listen)
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.IsUnspecified() {
		host = ""
	}
	listen := " --listen " + net.JoinHostPort(host, strconv.Itoa(serverPort))
	switch {
	case err == nil && (host == "127.0.0.1" || ip == netip.IPv6Loopback()): // lk serve listens there by itself
		fmt.Fprintf(a.stderr, "lk: to run it: %s\n", run)
	case err == nil && ip.IsLoopback():
		fmt.Fprintf(a.stderr, "lk: to run it: %s\n", run+listen)
	default:
		fmt.Fprintf(a.stderr, "lk: to run it: %s\n%s", run+listen+" --insecure", insteadOfInsecure)
	}
}

const insteadOfInsecure = "lk: --insecure lets every client in: --tokens, --tls-cert and --tls-key in its place let " +
	"in those with a token\n"

// sayJoin says how a node joins by a new token, which is in the file. The ports are like those of this node.
func (a *app) sayJoin(ctx context.Context, o *joinTokenOptions) {
	fmt.Fprintf(a.stderr, "lk: one node can join by this token within %s; keep it secret until then\n",
		duration.Text(o.life))
	run := "lk serve --join " + cmp.Or(o.out, "FILE")
	var s lockkeeper.ClusterStatus
	_ = o.ask(ctx, statusVerb, nil, &s) // without it, the ports are the usual ones
	if flags := o.neighbourFlags(ctx, &s); flags != "" {
		fmt.Fprintf(a.stderr, "lk: to run that node on this machine: %s\n", run+flags)
		fmt.Fprintln(a.stderr, "lk: if this node has --tokens, --tls-cert, --tls-key or --config, that one needs them, too")
		return
	}
	at, clients := nodeAddresses(&s)
	peers := "ADDR"
	if at.Port() != peerPort {
		peers = fmt.Sprint("ADDR:", at.Port())
	}
	fmt.Fprintf(a.stderr, "lk: to run that node on its machine, whose address is ADDR: %s --peers %s --listen ADDR:%d "+
		"--insecure\n%s", run, peers, clients.Port(), insteadOfInsecure)
}

// nodeAddresses returns the addresses at which other nodes and clients reach the node with that status. An address
// that the status lacks has the usual port, and no host.
func nodeAddresses(s *lockkeeper.ClusterStatus) (peers, clients netip.AddrPort) {
	peers, clients = netip.AddrPortFrom(netip.Addr{}, peerPort), netip.AddrPortFrom(netip.Addr{}, serverPort)
	own := slices.IndexFunc(s.Nodes, func(n lockkeeper.NodeStatus) bool { return n.Name == s.Node })
	if own < 0 {
		return peers, clients
	}
	if at, err := netip.ParseAddrPort(s.Nodes[own].Address); err == nil {
		peers = at
	}
	clients = netip.AddrPortFrom(peers.Addr(), serverPort)
	host, port, err := net.SplitHostPort(s.Nodes[own].Clients)
	number, wrong := strconv.ParseUint(port, 10, 16)
	if err != nil || wrong != nil {
		return peers, clients
	}
	ip, err := netip.ParseAddr(host)
	if err != nil { // a name
		ip = peers.Addr()
	}
	return peers, netip.AddrPortFrom(ip, uint16(number))
}

// neighbourFlags returns the flags of a further node on this machine, after a space: a folder, a name and
// addresses. No node has them, and they are not those of a node that may still join by another token. It
// returns "" if this node, which says s, can be reached from other machines.
func (o *joinTokenOptions) neighbourFlags(ctx context.Context, s *lockkeeper.ClusterStatus) string {
	var tokens []quorumlock.TokenStatus
	folder, err := o.folder()
	at, clients := nodeAddresses(s)
	if err != nil || !at.Addr().IsLoopback() || o.ask(ctx, tokensVerb, nil, &tokens) != nil {
		return ""
	}
	number := len(s.Nodes)
	for _, t := range tokens {
		if t.UsedBy == "" && t.Left > 0 {
			number++
		}
	}
	for ; ; number++ {
		name := fmt.Sprint("node", number)
		peers := portBeside(at, number-1).String()
		// Between those for clients are the ports for HTTP, such as 7421 of the first node.
		listen := portBeside(clients, 2*(number-1)).String()
		taken := func(n lockkeeper.NodeStatus) bool {
			return n.Name == name || n.Address == peers || n.Address == listen || n.Clients == listen
		}
		if !slices.ContainsFunc(s.Nodes, taken) {
			data := filepath.Join(filepath.Dir(folder), name)
			return fmt.Sprintf(" --data %s --name %s --peers %s --listen %s", data, name, peers, listen)
		}
	}
}

// portBeside returns the address with the port that many ports above; below, if there are not so many.
func portBeside(at netip.AddrPort, distance int) netip.AddrPort {
	port := int(at.Port()) + distance
	if port > math.MaxUint16 {
		port = int(at.Port()) - distance
	}
	return netip.AddrPortFrom(at.Addr(), uint16(port))
}

// dataFlag returns the flag that names the folder, after a space; "" if it is the default.
func (o *clusterOptions) dataFlag(folder string) string {
	if usual, err := defaultNodeFolder(); err == nil && usual == folder {
		return ""
	}
	return " --data " + folder
}
