package redlock

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/link"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/redislink"
	"github.com/lockkeeper/lockkeeper/internal/attached"
	"github.com/lockkeeper/lockkeeper/internal/watching"
)

// Engine keeps claims at a majority of independent servers. It is a [lockkeeper.Engine], safe for
// concurrent use.
//
// A quorum.Party decides; it is a state machine without goroutines. The engine brings it calls,
// replies, messages and the time, one step at a time under a mutex, and does what it outputs:
//
//	callers ── calls ────────┐           ┌── requests ──> server: queue ──> pipeline ──> Link
//	timer ───────────────────┼──> Party ─┼── answers ───> callers
//	Links ── replies, events ┘           └── notices ───> clients
type Engine struct {
	clock   func() time.Duration // the boot clock: it goes on while the computer sleeps
	servers []*server
	running sync.WaitGroup
	closing context.Context // ends when the engine is closed
	close   context.CancelFunc
	usable  chan struct{} // closed when a majority of servers was up for the first time
	poller  *watching.Poller[moment]

	handshaken atomic.Pointer[func(took time.Duration)] // see ReportHandshakes
	group      *redislink.Group                         // the connections to Redis; nil without any

	mu       sync.Mutex // guards all below, and the servers' mutable fields
	party    *quorum.Party
	calls    map[quorum.CallID]*call
	sessions attached.Sessions[struct{}]
	timer    *time.Timer
	due      time.Duration // when timer fires, by clock; 0: it does not
	closed   bool
	idle     chan struct{} // of a closed engine: closed when the servers have done all requests
}

var errClosed = errors.New("the engine is closed")

// newEngine returns an engine on one link for each server: 1, 3, 5 or 7. It takes the time from
// clock. The links are down at first; see waitUsable.
func newEngine(clock func() time.Duration, links []link.Link) *Engine {
	var seed [8]byte
	rand.Read(seed[:])
	channel := rand.Text()
	e := &Engine{
		clock:  clock,
		usable: make(chan struct{}),
		idle:   make(chan struct{}),
		calls:  make(map[quorum.CallID]*call),
		party: quorum.NewParty(quorum.Settings{
			Servers: len(links),
			To:      channel,
			Seed:    binary.LittleEndian.Uint64(seed[:]),
		}),
	}
	e.closing, e.close = context.WithCancel(context.Background())
	e.poller = watching.NewPoller(e.closing, e.watchersRead)
	e.timer = time.AfterFunc(time.Hour, e.tick)
	e.timer.Stop()
	for i, l := range links {
		e.servers = append(e.servers, newServer(e, i, l))
	}
	for _, s := range e.servers {
		e.running.Go(s.work)
		e.running.Go(func() { s.link.Watch(e.closing, channel, s.events()) })
	}
	return e
}

var _ lockkeeper.HandshakeReporter = (*Engine)(nil)

// ReportHandshakes implements lockkeeper.HandshakeReporter.
func (e *Engine) ReportHandshakes(report func(took time.Duration)) { e.handshaken.Store(&report) }

// waitUsable waits until a majority of the servers can be used.
func (e *Engine) waitUsable(ctx context.Context) error {
	select {
	case <-e.usable:
		return nil
	case <-ctx.Done():
		return e.unavailable(ctx.Err())
	}
}

// Attach implements lockkeeper.Engine.
func (e *Engine) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	if err := s.Check(false); err != nil {
		return lockkeeper.Lease{}, err
	}
	s.Named, s.Lapsed = slices.Clone(s.Named), slices.Clone(s.Lapsed)
	attaching := &attaching{session: s.ID, ttl: s.TTL, notify: notify}
	a, err := e.call(ctx, attaching, func(now time.Duration) quorum.CallID { return e.party.Attach(now, s) })
	return a.Lease, err
}

// Renew implements lockkeeper.Engine.
func (e *Engine) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	if err := checkKey(k); err != nil {
		return lockkeeper.Lease{}, err
	}
	a, err := e.call(ctx, nil, func(now time.Duration) quorum.CallID { return e.party.Renew(now, k) })
	if err != nil {
		return lockkeeper.Lease{}, err
	}
	e.mu.Lock()
	e.sessions.Renew(k.Session, k.Epoch, time.Now().Add(a.Lease.TTL))
	e.mu.Unlock()
	return a.Lease, nil
}

// Claim implements lockkeeper.Engine.
func (e *Engine) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if err := w.Check(); err != nil {
		return lockkeeper.Status{}, err
	}
	if err := e.Guarantees().Refuse(&w); err != nil {
		return lockkeeper.Status{}, err
	}
	if err := checkKey(k); err != nil {
		return lockkeeper.Status{}, err
	}
	a, err := e.call(ctx, nil, func(now time.Duration) quorum.CallID { return e.party.Claim(now, k, w) })
	return a.Status, err
}

// End implements lockkeeper.Engine.
func (e *Engine) End(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending) error {
	if err := ending.Check(); err != nil {
		return err
	}
	if err := e.Guarantees().RefuseEnding(&ending); err != nil {
		return err
	}
	if err := checkKey(k); err != nil {
		return err
	}
	_, err := e.call(ctx, nil, func(now time.Duration) quorum.CallID { return e.party.End(now, k, ending) })
	if err == nil && ending.Kind == lockkeeper.Leave {
		e.mu.Lock()
		e.sessions.Remove(k.Session, k.Epoch)
		e.mu.Unlock()
	}
	return err
}

// checkKey refuses keys that name no possible session, before their text reaches a server.
func checkKey(k lockkeeper.Key) error {
	if k.Session == "" || len(k.Session) > lockkeeper.MaxSessionID {
		return &lockkeeper.Error{Err: lockkeeper.ErrSession}
	}
	return nil
}

// closeGrace is how long Close waits for requests that no caller waits for, such as the rest of a
// release at the servers beyond a majority. Without them these servers would keep the vote until
// the session's TTL ends.
const closeGrace = 500 * time.Millisecond

// Close implements lockkeeper.Engine. Sessions that were not left live until their TTL has passed.
func (e *Engine) Close() error {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		e.timer.Stop()
		e.noteIdle()
	}
	e.mu.Unlock()
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-e.idle:
	case <-grace.C:
	}
	e.close()
	e.running.Wait()
	e.poller.Wait()
	e.mu.Lock()
	e.sessions.Clear()
	e.mu.Unlock()
	if e.group != nil {
		return e.group.Close()
	}
	return nil
}

// noteIdle closes idle if the engine is closed and no server has requests. The caller holds mu.
func (e *Engine) noteIdle() {
	if !e.closed || slices.ContainsFunc(e.servers, (*server).busy) {
		return
	}
	select {
	case <-e.idle:
	default:
		close(e.idle)
	}
}
