package server

import (
	"context"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// A list sends only as many statuses as the client gave credit for. So a client that does not read
// its list delays nobody else and fills no memory.
type list struct {
	stop   context.CancelFunc
	credit uint64        // guarded by the lock of the conn
	more   chan struct{} // wakes spend
}

// list begins to answer a list, beside the reader.
func (c *conn) list(call uint64, m *wire.Query) error {
	ctx, cancel := context.WithCancel(c.server.life)
	l := &list{stop: cancel, credit: uint64(m.GetCredit()), more: make(chan struct{}, 1)}
	c.Lock()
	_, twice := c.lists[call]
	full := len(c.lists) >= maxLists
	if !twice && !full {
		c.lists[call] = l
	}
	c.Unlock()
	switch {
	case twice:
		cancel()
		return fmt.Errorf("%w: there is a list %d already", errProtocol, call)
	case full:
		cancel()
		c.reply(&answer{call: call, err: &lockkeeper.Error{
			Err: lockkeeper.ErrDenied, Reason: lockkeeper.Quota,
			Detail: fmt.Sprintf("%d lists at a time are the most that one connection may ask for", maxLists),
		}})
		return nil
	}
	taken := []limits.Resource{limits.Watchers}
	if m.GetRef() == nil && m.GetSession() == "" {
		taken = append(taken, limits.BroadLists)
	}
	for n, r := range taken {
		if err := c.usage.Take(r, 1); err != nil {
			c.endList(l, call, taken[:n])
			c.reply(&answer{call: call, err: err})
			return nil
		}
	}
	c.work.Go(func() { c.answerList(ctx, l, call, m, taken) })
	return nil
}

// endList removes a list and releases one of each resource that it took.
func (c *conn) endList(l *list, call uint64, taken []limits.Resource) {
	l.stop()
	for _, r := range taken {
		c.usage.Give(r, 1)
	}
	c.Lock()
	delete(c.lists, call)
	c.Unlock()
}

func (c *conn) answerList(ctx context.Context, l *list, call uint64, m *wire.Query, taken []limits.Resource) {
	last := answer{call: call}
	for status, err := range c.engine.List(ctx, m.Read()) {
		if err != nil {
			last.err = err
			break
		}
		if !c.spend(ctx, l) {
			break
		}
		c.listed(call, &status)
	}
	if ctx.Err() != nil && last.err == nil { // the engine did not end it
		last.err = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable,
			Detail: "the list is cut short: the server ends this connection"}
	}
	c.endList(l, call, taken)
	c.reply(&last)
}

// listed sends one status of a list, as reply does.
func (c *conn) listed(call uint64, s *lockkeeper.Status) {
	if c.withdrawn() || c.Begin(context.Background()) != nil {
		return
	}
	c.Out.PutListed(call, s)
	c.End(false)
}

// spend waits for a unit of the list's credit and takes it. It reports false if the client stops the
// list.
func (c *conn) spend(ctx context.Context, l *list) bool {
	for {
		if ctx.Err() != nil {
			return false
		}
		c.Lock()
		granted := l.credit > 0
		if granted {
			l.credit--
		}
		c.Unlock()
		if granted {
			return true
		}
		select {
		case <-l.more:
		case <-ctx.Done():
		}
	}
}

// steer stops a list or gives it credit. It ignores a list that has ended.
func (c *conn) steer(call uint64, credit uint32, stop bool) {
	c.Lock()
	defer c.Unlock()
	if l := c.lists[call]; l != nil {
		if stop {
			l.stop()
		}
		l.credit += uint64(credit)
		select {
		case l.more <- struct{}{}:
		default:
		}
	}
}
