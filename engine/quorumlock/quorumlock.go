package quorumlock

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/node"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/rights"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/table"
)

// Engine is one node of a cluster. It is safe for concurrent use.
type Engine struct {
	node *node.Node
	host *host // nil in tests without disks and sockets
}

var (
	_ lockkeeper.Engine  = (*Engine)(nil)
	_ lockkeeper.Starter = (*Engine)(nil)
)

func guarantees() lockkeeper.Guarantees {
	return lockkeeper.Guarantees{
		Name:       "cluster",
		Features:   lockkeeper.TableFeatures,
		Reach:      lockkeeper.OnNetwork,
		Survives:   lockkeeper.SurvivesPowerLoss,
		Fences:     lockkeeper.FencesForever,
		FenceScope: lockkeeper.FencesOverAll,
		Clock:      lockkeeper.ClockBoot,
		Notes: lockkeeper.Notes{
			Survives: "and the loss of a minority of the voters, with their disks",
			Clock:    "that of the leader; it stands still while no node leads",
		},
		Breaks: "disks that report data as written that they have not written; an older copy of a node's folder in " +
			"its place",
	}
}

// Defaults of a node.
const (
	tickTime       = 100 * time.Millisecond
	electionTicks  = 10
	callTimeout    = 10 * time.Second
	recordInterval = time.Second
	snapshotEvery  = 20_000 // entries
	keepEntries    = 10_000
	maxQueued      = 100_000 // calls
	maxEntry       = 64 << 10
	maxUnwritten   = 64 << 20
)

// withDefaults returns c with the defaults of all that the owner of a node does not choose.
func withDefaults(c node.Config) node.Config {
	c.Tick = tickTime
	c.Replica.Guarantees = guarantees()
	c.Replica.Decider = func(policy []byte) replica.Decider { return rights.New(policy) }
	c.Replica.HeartbeatTicks, c.Replica.ElectionTicks = 1, electionTicks
	c.Replica.CallTimeout, c.Replica.RecordEvery = callTimeout, recordInterval
	c.Replica.SnapshotEvery, c.Replica.KeepEntries = snapshotEvery, keepEntries
	c.Replica.MaxQueued, c.Replica.MaxEntry, c.Replica.MaxUnwritten = maxQueued, maxEntry, maxUnwritten
	return c
}

// Guarantees implements lockkeeper.Engine.
func (e *Engine) Guarantees() lockkeeper.Guarantees { return guarantees() }

// callerOf returns who makes a call, as the server in front of this engine has authenticated them.
func callerOf(ctx context.Context) replica.Caller { return replica.Caller(access.CallerOf(ctx)) }

// Attach implements lockkeeper.Engine.
func (e *Engine) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	reply, err := e.node.Call(ctx, callerOf(ctx), table.Command{Op: table.Attach, Session: s}, notify)
	return reply.Lease, err
}

// Renew implements lockkeeper.Engine.
func (e *Engine) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	reply, err := e.node.Call(ctx, callerOf(ctx), table.Command{Op: table.Renew, Key: k}, nil)
	return reply.Lease, err
}

// Claim implements lockkeeper.Engine.
func (e *Engine) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	reply, err := e.node.Call(ctx, callerOf(ctx), table.Command{Op: table.Claim, Key: k, Want: w}, nil)
	return reply.Status, err
}

// End implements lockkeeper.Engine.
func (e *Engine) End(ctx context.Context, k lockkeeper.Key, x lockkeeper.Ending) error {
	_, err := e.node.Call(ctx, callerOf(ctx), table.Command{Op: table.End, Key: k, Ending: x}, nil)
	return err
}

// StartClaim implements lockkeeper.Starter.
func (e *Engine) StartClaim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want,
	answer func(lockkeeper.Status, error)) bool {
	e.node.Start(callerOf(ctx), table.Command{Op: table.Claim, Key: k, Want: w},
		func(reply *table.Reply, err error) { answer(reply.Status, err) })
	return true
}

// StartEnd implements lockkeeper.Starter.
func (e *Engine) StartEnd(ctx context.Context, k lockkeeper.Key, x lockkeeper.Ending, answer func(error)) bool {
	e.node.Start(callerOf(ctx), table.Command{Op: table.End, Key: k, Ending: x},
		func(_ *table.Reply, err error) { answer(err) })
	return true
}

// staleTime limits how long a list that may be stale waits for the cluster.
const staleTime = 700 * time.Millisecond

// List implements lockkeeper.Engine. The list has all that was answered anywhere in the cluster before
// List was called. With Stale, it has what this node knows, if the cluster confirms nothing in time.
func (e *Engine) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		if err := q.Check(); err != nil {
			yield(lockkeeper.Status{}, err)
			return
		}
		mayBeStale := q.Stale && !q.Follow
		err := e.read(ctx, mayBeStale)
		if err != nil && !mayBeStale {
			yield(lockkeeper.Status{}, err)
			return
		}
		for st, failed := range e.node.List(ctx, q) {
			if !yield(st, failed) || failed != nil {
				return
			}
		}
		if err != nil {
			yield(lockkeeper.Status{}, e.stale(err))
		}
	}
}

// ErrRemoved is the cause of the error of a List at a node that was removed from its cluster: it never learns of a
// change again.
var ErrRemoved = errors.New("this node was removed from its cluster")

// read makes the table of this node current. If the caller accepts an old state, it waits only for a
// leader that answers.
func (e *Engine) read(ctx context.Context, mayBeStale bool) error {
	if e.host != nil && e.host.refusedAt.Load() != nil {
		return replica.Unavailable(ErrRemoved)
	}
	if mayBeStale {
		soon, cancel := context.WithTimeoutCause(ctx, staleTime, errUnconfirmed)
		defer cancel()
		ctx = soon
	}
	return e.node.Read(ctx)
}

var errUnconfirmed = errors.New("no leader of the cluster has confirmed it yet")

// stale returns the error that says how old a list is, and why.
func (e *Engine) stale(why error) error {
	stale := lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: why}
	if typed := new(lockkeeper.Error); errors.As(why, &typed) {
		stale = *typed
	}
	since, _ := e.node.Suspended()
	stale.Stale = max(since, 1)
	return &stale
}

// Close implements lockkeeper.Engine. The other nodes go on; a leader hands over first, if another
// voter can lead. Sessions that were attached here live until their TTL ends, and may go on at another
// node. An error says that the disk has failed; nothing that was answered is missing on the others.
func (e *Engine) Close() error {
	if e.host == nil {
		e.node.Close()
		return nil
	}
	return e.host.close(e)
}
