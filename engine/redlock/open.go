package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/membership"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/redisconn"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/redislink"
)

// A Server is one Redis server as the engine uses it, for applications that have a client already.
// GoRedis makes one of a client of go-redis.
type Server = redisconn.Server

// A Connection is one connection of a Server to one process; see [Server].
type Connection = redisconn.Connection

// A Pipeliner is what a Server and a Connection have in common; see [Server].
type Pipeliner = redisconn.Pipeliner

// ReplyError is an error that Redis answered to one command; see [Server].
type ReplyError = redisconn.ReplyError

// ErrUnsent says that a server received nothing; see [Server].
var ErrUnsent = redisconn.ErrUnsent

// GoRedis returns a Server over a client that the application has. The client must lead to one server:
// clients of Redis Cluster and of Sentinel are refused. Closing the engine does not close the client.
func GoRedis(client redis.UniversalClient) (Server, error) {
	s, err := redisconn.GoRedis(client)
	if err != nil {
		return nil, lockkeeper.Invalid("%v", err)
	}
	return s, nil
}

// Settings of [New]. The zero value is the usual one.
type Settings struct {
	// Prefix begins the names of all keys and channels: 1 to 64 letters, digits and :-_./ ; ""
	// means "lockkeeper:". Engines with different prefixes share no locks.
	Prefix string

	// Existing: make no set of the servers if there is none. New then returns an ErrUnavailable whose
	// cause is lockkeeper.ErrNoTables.
	Existing bool
}

const (
	// openBound is how long New waits for a majority of the servers, if ctx has no earlier end.
	openBound = 10 * time.Second
	// firstUseBound is how long New waits for servers that do not answer, if a set can't be used
	// without them.
	firstUseBound = time.Second
)

// Open opens the engine over the servers that url names; see the help of its scheme. ctx bounds the
// opening alone.
func Open(ctx context.Context, url string) (*Engine, error) {
	a, err := parse(url)
	if err != nil {
		return nil, err
	}
	servers, err := a.servers()
	if err != nil {
		return nil, err
	}
	e, err := New(ctx, servers, Settings{Prefix: a.prefix, Existing: a.existing})
	if err != nil {
		closeAll(servers)
		return nil, err
	}
	return e, nil
}

// servers returns the servers of a URL. They connect when they are used.
func (a *address) servers() ([]Server, error) {
	options, err := a.options()
	if err != nil {
		return nil, err
	}
	var servers []Server
	for _, o := range options {
		servers = append(servers, redisconn.OwnGoRedis(o))
	}
	return servers, nil
}

func closeAll(servers []Server) {
	for _, s := range servers {
		s.Close()
	}
}

// New opens the engine over 1, 3, 5 or 7 independent servers. Every user of the set names the same
// servers in the same order. The engine closes them when it is closed; if New fails, the caller does.
//
// Servers that can't keep locks are refused with the reason: nodes of Redis Cluster, replicas, Redis
// before 6.2, and those that may evict keys. A minority need not answer, except at the first use.
func New(ctx context.Context, servers []Server, s Settings) (*Engine, error) {
	if n := len(servers); n != 1 && n != 3 && n != 5 && n != 7 {
		return nil, lockkeeper.Invalid("%d servers: name 1, 3, 5 or 7", n)
	}
	if s.Prefix == "" {
		s.Prefix = defaultPrefix
	}
	if len(s.Prefix) > maxPrefix || strings.ContainsFunc(s.Prefix, notInPrefix) {
		return nil, lockkeeper.Invalid("the prefix %q: it has 1 to %d letters, digits and :-_./", s.Prefix, maxPrefix)
	}
	group := redislink.New(servers, s.Prefix)
	if s.Existing {
		group.OnlyExisting()
	}
	ctx, cancel := context.WithTimeout(ctx, openBound)
	defer cancel()
	if err := group.Inspect(ctx); err != nil {
		return nil, refusal(err)
	}
	e := newEngine(lockkeeper.NewBootClock(), group.Links())
	e.group = group
	if err := e.awaitUsable(ctx); err != nil {
		e.group = nil // the caller closes the servers
		e.Close()
		return nil, err
	}
	return e, nil
}

// awaitUsable waits until a majority of the servers can be used, or certainly can't.
func (e *Engine) awaitUsable(ctx context.Context) error {
	first := time.NewTimer(firstUseBound)
	defer first.Stop()
	for {
		select {
		case <-e.usable:
			return nil
		case <-e.group.Failed():
			return refusal(e.group.Err())
		case <-first.C:
			if err := e.group.Err(); err != nil {
				return refusal(err)
			}
		case <-ctx.Done():
			if err := e.group.Err(); err != nil {
				return refusal(err)
			}
			return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "the servers did not answer in time",
				Cause: ctx.Err()}
		}
	}
}

// refusal returns the error of opening with what to do about it.
func refusal(err error) error {
	refuse := func(sentinel error, format string, args ...any) error {
		return &lockkeeper.Error{Err: sentinel, Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case errors.Is(err, redisconn.ErrUnfit), errors.Is(err, membership.ErrForeign):
		return refuse(lockkeeper.ErrInvalid, "%v", err)
	case errors.Is(err, redislink.ErrDenied):
		return refuse(lockkeeper.ErrDenied, "%v", err)
	case errors.Is(err, redislink.ErrNoSet):
		return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: err.Error(), Cause: lockkeeper.ErrNoTables}
	case errors.Is(err, membership.ErrMajorityLost):
		return refuse(lockkeeper.ErrUnavailable, "%v; nobody can know anymore which locks are held. Stop the programs that "+
			"use locks, then start a new set with \"lk reset URL\": all locks are forgotten", err)
	}
	return refuse(lockkeeper.ErrUnavailable, "%v", err)
}
