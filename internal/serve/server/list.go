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
func (c *conn) list(m *wire.Request) error {
	ctx, cancel := context.WithCancel(c.server.life)
	l := &list{stop: cancel, credit: uint64(m.GetList().GetCredit()), more: make(chan struct{}, 1)}
	c.Lock()
	_, twice := c.lists[m.GetCall()]
	full := len(c.lists) >= maxLists
	if !twice && !full {
		c.lists[m.GetCall()] = l
	}
	c.Unlock()
	switch {
	case twice:
		cancel()
		return fmt.Errorf("%w: there is a list %d already", errProtocol, m.GetCall())
	case full:
		cancel()
		c.reply(&wire.Reply{Call: m.GetCall(), Error: wire.NewError(&lockkeeper.Error{
			Err: lockkeeper.ErrDenied, Reason: lockkeeper.Quota,
			Detail: fmt.Sprintf("%d lists at a time are the most that one connection may ask for", maxLists),
		})})
		return nil
	}
	taken := []limits.Resource{limits.Watchers}
	if m.GetList().GetRef() == nil && m.GetList().GetSession() == "" {
		taken = append(taken, limits.BroadLists)
	}
	for n, r := range taken {
		if err := c.usage.Take(r, 1); err != nil {
			c.endList(l, m, taken[:n])
			c.reply(&wire.Reply{Call: m.GetCall(), Error: wire.NewError(err)})
			return nil
		}
	}
	c.work.Go(func() { c.answerList(ctx, l, m, taken) })
	return nil
}

// endList removes a list and releases one of each resource that it took.
func (c *conn) endList(l *list, m *wire.Request, taken []limits.Resource) {
	l.stop()
	for _, r := range taken {
		c.usage.Give(r, 1)
	}
	c.Lock()
	delete(c.lists, m.GetCall())
	c.Unlock()
}

func (c *conn) answerList(ctx context.Context, l *list, m *wire.Request, taken []limits.Resource) {
	last := &wire.Reply{Call: m.GetCall()}
	for status, err := range c.engine.List(ctx, m.GetList().Read()) {
		if err != nil {
			last.Error = wire.NewError(err)
			break
		}
		if !c.spend(ctx, l) {
			break
		}
		c.reply(&wire.Reply{Call: m.GetCall(), Status: wire.NewStatus(&status, ""), More: true})
	}
	if ctx.Err() != nil && last.Error == nil { // the engine did not end it
		last.Error = wire.NewError(&lockkeeper.Error{Err: lockkeeper.ErrUnavailable,
			Detail: "the list is cut short: the server ends this connection"})
	}
	c.endList(l, m, taken)
	c.reply(last)
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
func (c *conn) steer(m *wire.Flow) {
	c.Lock()
	defer c.Unlock()
	if l := c.lists[m.GetCall()]; l != nil {
		if m.GetStop() {
			l.stop()
		}
		l.credit += uint64(m.GetCredit())
		select {
		case l.more <- struct{}{}:
		default:
		}
	}
}
