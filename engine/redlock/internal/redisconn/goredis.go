package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// pipelineBound is how long a server may take to read or to answer a pipeline.
const pipelineBound = 3 * time.Second

// silenceBound is after how long a subscription without an answer to a ping counts as broken.
const silenceBound = 10 * time.Second

// GoRedis returns a Server over a client of go-redis. The client stays the application's, which
// closes it. It must lead to one server: clients of Redis Cluster, of Sentinel and of a ring are
// refused with the reason.
func GoRedis(client redis.UniversalClient) (Server, error) {
	single, ok := client.(*redis.Client)
	switch {
	case !ok:
		return nil, fmt.Errorf("a %T leads to several servers, and chooses one by the key: the engine needs a client "+
			"of each server by itself (*redis.Client), because it counts how many servers agree", client)
	case single == nil:
		return nil, errors.New("the client is nil")
	case single.Options().Addr == "FailoverClient":
		return nil, errors.New("this client follows Sentinel to whatever server is the master: a replica that becomes " +
			"master may lack the latest locks. Name each server by itself instead")
	}
	if size := single.Options().PoolSize; size > 0 && size < leastPool {
		return nil, fmt.Errorf("the PoolSize of the client is %d: the engine needs %d connections beside those of "+
			"subscriptions, one of them for itself", size, leastPool)
	}
	return &goRedis{client: single.WithTimeout(pipelineBound)}, nil
}

// leastPool is how many connections the engine uses at once, without subscriptions: one for requests,
// one for the membership, and one more.
const leastPool = 3

// OwnGoRedis returns a Server over a client that Close closes.
//
// It sends nothing twice, sends nothing but the commands of the engine, and heeds the ctx of every
// call.
func OwnGoRedis(options *redis.Options) Server {
	options.MaxRetries, options.DialerRetries = -1, 1
	options.ContextTimeoutEnabled = true
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = pipelineBound, pipelineBound, pipelineBound
	options.Protocol, options.DisableIdentity = 2, true
	if options.Dialer == nil {
		options.Dialer = dialer(options.TLSConfig)
	}
	options.PoolSize = leastPool
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &goRedis{client: redis.NewClient(options), own: true}
}

type goRedis struct {
	client *redis.Client
	own    bool
}

func (g *goRedis) Address() string { return g.client.Options().Addr }

func (g *goRedis) Close() error {
	if g.own {
		return g.client.Close()
	}
	return nil
}

// once is a command that go-redis never repeats, whatever MaxRetries of the client says: the server
// could execute it a second time, after its successors.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// Clone implements redis.Cmder.
func (c once) Clone() redis.Cmder { return once{c.Cmd.Clone().(*redis.Cmd)} }

// Pipeline implements Server. go-redis takes one connection of its pool for a pipeline.
func (g *goRedis) Pipeline(ctx context.Context, commands [][]any) ([]any, error) {
	return pipeline(ctx, g.client.Pipeline(), commands)
}

// Connect implements Server. A Conn of go-redis keeps the connection that its first pipeline takes from
// the pool. After a failure it refuses all work.
func (g *goRedis) Connect() Connection { return &sticky{conn: g.client.Conn()} }

// sticky closes its Conn when no pipeline uses it: go-redis does not allow it before.
type sticky struct {
	conn *redis.Conn

	mu     sync.Mutex // guards all below
	using  int        // pipelines
	closed bool
}

func (s *sticky) Pipeline(ctx context.Context, commands [][]any) ([]any, error) {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.using++
	}
	s.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("%w: %w", ErrUnsent, redis.ErrClosed)
	}
	defer s.done()
	return pipeline(ctx, s.conn.Pipeline(), commands)
}

func (s *sticky) done() {
	s.mu.Lock()
	s.using--
	last := s.closed && s.using == 0
	s.mu.Unlock()
	if last {
		s.conn.Close()
	}
}

func (s *sticky) Close() error {
	s.mu.Lock()
	last := !s.closed && s.using == 0
	s.closed = true
	s.mu.Unlock()
	if last {
		return s.conn.Close()
	}
	return nil
}

func pipeline(ctx context.Context, pipe redis.Pipeliner, commands [][]any) ([]any, error) {
	sent := make([]*redis.Cmd, len(commands))
	for i, args := range commands {
		sent[i] = redis.NewCmd(ctx, args...)
		if err := pipe.Process(ctx, once{sent[i]}); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnsent, err)
		}
	}
	_, failure := pipe.Exec(ctx)
	replies := make([]any, len(sent))
	for i, cmd := range sent {
		value, err := cmd.Result()
		var reply redis.Error
		switch {
		case err == nil:
			replies[i] = plain(value)
		case errors.Is(err, redis.Nil):
			failure = nil
		case errors.As(err, &reply):
			replies[i] = ReplyError(reply.Error())
			failure = nil
		default:
			return nil, classify(err)
		}
	}
	if failure != nil && !errors.Is(failure, redis.Nil) {
		// No command has an error: Redis refused the connection itself, such as its password.
		return nil, fmt.Errorf("%w: %w", ErrUnsent, failure)
	}
	return replies, nil
}

// classify says of an error whether nothing was sent.
func classify(err error) error {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) ||
		errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("%w: %w", ErrUnsent, err)
	}
	return err
}

// plain returns a reply with a map, as RESP3 has it, as a list of keys and values.
func plain(value any) any {
	switch v := value.(type) {
	case map[any]any:
		list := make([]any, 0, 2*len(v))
		for key, value := range v {
			list = append(list, plain(key), plain(value))
		}
		return list
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case error:
		return ReplyError(v.Error())
	}
	return value
}

// Subscribe implements Server. It uses the low-level Receive, because the channels of go-redis
// connect again by themselves.
func (g *goRedis) Subscribe(ctx context.Context, channels []string, ready func(),
	deliver func(channel, payload string)) error {
	sub := g.client.Subscribe(ctx)
	defer sub.Close()
	ended := context.AfterFunc(ctx, func() { sub.Close() }) // Receive does not heed every ctx
	defer ended()
	if err := sub.Subscribe(ctx, channels...); err != nil {
		return err
	}
	var received atomic.Int64 // counts what has arrived
	stop := make(chan struct{})
	var pinging sync.WaitGroup
	pinging.Go(func() { watchSilence(ctx, sub, &received, stop) })
	defer pinging.Wait()
	defer close(stop)
	for pending := len(channels); ; {
		message, err := sub.Receive(ctx)
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		received.Add(1)
		switch m := message.(type) {
		case *redis.Subscription:
			pending--
			switch {
			case pending == 0:
				ready()
			case pending < 0:
				return errors.New("the connection was replaced") // a ping that fails connects again
			}
		case *redis.Message:
			deliver(m.Channel, m.Payload)
		}
	}
}

// watchSilence pings a subscription, and closes it if nothing arrives. A connection that leads
// nowhere would else deliver nothing without an error.
func watchSilence(ctx context.Context, sub *redis.PubSub, received *atomic.Int64, stop <-chan struct{}) {
	tick := time.NewTicker(silenceBound / 2)
	defer tick.Stop()
	for before := int64(-1); ; {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		now := received.Load()
		if now == before || sub.Ping(ctx) != nil {
			sub.Close()
			return
		}
		before = now
	}
}
