package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock"
	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/control"
)

// The verbs by which lk cluster asks a server.
const (
	statusVerb   = "cluster status"
	tokenVerb    = "cluster token"
	tokensVerb   = "cluster tokens"
	withdrawVerb = "cluster withdraw"
	removeVerb   = "cluster remove"
	transferVerb = "cluster transfer"
	rankVerb     = "cluster rank"
	votersVerb   = "cluster voters"
	policyVerb   = "cluster policy"
	setVerb      = "cluster policy set"
)

// clusterVerbs returns what a node does for lk cluster.
func (s *service) clusterVerbs() map[string]control.Verb {
	e := s.node
	return map[string]control.Verb{
		statusVerb: func(context.Context, json.RawMessage) (any, error) { return e.Cluster(), nil },
		tokenVerb: decoded(func(ctx context.Context, life time.Duration) (any, error) {
			token, err := e.CreateToken(ctx, life)
			return token.String(), err
		}),
		tokensVerb: func(context.Context, json.RawMessage) (any, error) { return e.Tokens() },
		withdrawVerb: decoded(func(ctx context.Context, id string) (any, error) {
			return nil, e.WithdrawToken(ctx, id)
		}),
		removeVerb: decoded(func(ctx context.Context, c nodeChange) (any, error) {
			return nil, e.Remove(ctx, c.Node, c.Note)
		}),
		transferVerb: decoded(func(ctx context.Context, c nodeChange) (any, error) {
			return nil, e.Transfer(ctx, c.Node)
		}),
		rankVerb: decoded(func(ctx context.Context, c nodeChange) (any, error) {
			return nil, e.SetRank(ctx, c.Node, c.Rank)
		}),
		votersVerb: decoded(func(ctx context.Context, number int) (any, error) {
			return nil, e.SetVoters(ctx, number)
		}),
		policyVerb: func(ctx context.Context, _ json.RawMessage) (any, error) { return e.ReadPolicy(ctx) },
		setVerb: decoded(func(ctx context.Context, p *access.Policy) (any, error) {
			return nil, s.setClusterPolicy(ctx, p)
		}),
	}
}

// decoded returns the verb that calls do with its arguments.
func decoded[T any](do func(context.Context, T) (any, error)) control.Verb {
	return func(ctx context.Context, text json.RawMessage) (any, error) {
		var arguments T
		if err := json.Unmarshal(text, &arguments); err != nil {
			return nil, lockkeeper.Invalid("the arguments: %v", err)
		}
		return do(ctx, arguments)
	}
}

// openNode opens the node of the served folder. With --join, it joins the cluster of the token first,
// unless it has done that before; a signal ends the wait for that.
func (s *service) openNode(ctx context.Context, folder string, l net.Listener) (*quorumlock.Engine, error) {
	o := s.options
	if err := control.CheckFolder(folder); err != nil {
		return nil, err
	}
	c := o.node
	c.Logger, c.Audit = s.log, s.clusterAudit
	c.ClientAddress, c.Open = s.clientAddress(l, c), !o.knowsClients()
	if o.joins && quorumlock.HasJoined(folder) {
		s.checkJoined(folder)
	} else if o.joins {
		if err := s.join(ctx, folder, c); err != nil {
			return nil, err
		}
	}
	e, err := quorumlock.Open(ctx, folder, c)
	if err != nil {
		return nil, err
	}
	s.checkFlags(e)
	if err := s.checkPolicy(e); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if s.operators, err = control.Listen(folder); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// serveOperators answers lk cluster, if a node is served.
func (s *service) serveOperators(failed chan<- error) {
	if s.node == nil {
		return
	}
	s.beside.Go(func() { s.followCluster(failed) })
	s.beside.Go(s.followPolicy)
	s.beside.Go(func() {
		operators := roundtrip.EndInOutage(s.life) // a person waits
		if err := control.Serve(operators, s.operators, s.clusterVerbs(), s.log); err != nil {
			failed <- err
		}
	})
}

// join makes the folder a node of the cluster of the token.
func (s *service) join(ctx context.Context, folder string, c quorumlock.Config) error {
	o := s.options
	if c.Listen == "" {
		return &exit{code: exitUsage, say: errNoPeers}
	}
	token, err := quorumlock.ReadToken(o.join)
	if err != nil {
		return &exit{code: exitUsage, say: fmt.Errorf("--join: %w", err)}
	}
	if c.Name == "" {
		c.Name = defaultNodeName()
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	s.log.Info("joins a cluster", "folder", folder, "name", c.Name)
	err = quorumlock.Join(ctx, folder, token, c)
	if refusal, ok := errors.AsType[*quorumlock.Refusal](err); ok {
		return &exit{code: exitDenied, say: fmt.Errorf("the cluster does not let this node in: %w", refusal)}
	}
	if errors.Is(err, quorumlock.ErrOtherCluster) {
		return &exit{code: exitDenied, say: fmt.Errorf("--join: the token is of a cluster that none of its addresses "+
			"belongs to any more; make a new one, on a node of the cluster: %w", err)}
	}
	if err == nil {
		s.log.Info("has joined the cluster", "folder", folder, "name", c.Name)
	}
	return err
}

// checkJoined warns of a token of another cluster than that of the folder's node, which is served. The file
// of the token may be gone.
func (s *service) checkJoined(folder string) {
	token, err := quorumlock.ReadToken(s.options.join)
	if err != nil {
		return
	}
	if err := quorumlock.CheckJoined(folder, token); err != nil {
		s.log.Warn("--join is ignored, and the node of the folder served", "error", err)
	}
}

// checkFlags warns of --name and --rank that a node has no use for: it has others since it joined.
func (s *service) checkFlags(e *quorumlock.Engine) {
	now, o := e.Cluster(), s.options
	if name := o.node.Name; name != "" && name != now.Node {
		s.log.Warn("--name is ignored: the node of this folder keeps its name", "name", now.Node)
	}
	for i := range now.Nodes {
		if n := &now.Nodes[i]; n.Name == now.Node && o.nodeFlags.rank != "" && n.Rank != o.node.Rank.String() {
			s.log.Warn("--rank is ignored: the node of this folder has one, and lk cluster rank changes it", "rank", n.Rank)
		}
	}
}

// clientAddress returns where clients reach this node; "" if only those on this machine do, though
// nodes are on several.
func (s *service) clientAddress(l net.Listener, c quorumlock.Config) string {
	at, err := netip.ParseAddrPort(cmp.Or(c.Advertise, c.Listen))
	if l.Addr().(*net.TCPAddr).IP.IsLoopback() && err == nil && !at.Addr().IsLoopback() {
		return ""
	}
	return s.usable(l)
}
