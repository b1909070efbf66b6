package remote

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
)

var _ lockkeeper.OutageReporter = (*Engine)(nil)

// A suspension is what a server states that can perform no calls at present:
//
//	           no leader                     for longer than an election takes
//	answers ──────────────→ suspended ──────────────────────────────────────────→ outage
//	   ↑                        │ calls wait                                       │ hasty calls end, others wait
//	   └────────────────────────┴────────── a leader ──────────────────────────────┘
//
// In both states the client goes to another server if there is one.
type suspension struct {
	why    string
	reason lockkeeper.Reason // of holds that end because of it
	outage bool
}

var (
	errSuspended = errors.New("it can perform no calls at present, and there is another node")
	errOutage    = errors.New("the outage lasts")
)

// suspend records whether the server can perform calls. It reports whether an outage begins.
func (c *conn) suspend(stated *lockkeeper.ClusterNodes) (outage bool) {
	if stated.Suspended == "" {
		c.suspension.Store(nil)
		return false
	}
	now := &suspension{why: stated.Suspended, reason: lockkeeper.Unreachable, outage: stated.Outage}
	if stated.QuorumLost {
		now.reason = lockkeeper.QuorumLost
	}
	before := c.suspension.Swap(now)
	return stated.Outage && (before == nil || !before.outage)
}

// suspended records what the server states. An error ends the connection, because the client moves. If it
// stays and an outage begins, the open calls end whose callers have no time for it.
func (c *conn) suspended(stated *lockkeeper.ClusterNodes) error {
	begins := c.suspend(stated)
	if err := c.leaveSuspended(); err != nil {
		return err
	}
	if begins {
		c.endHasty(c.outage())
	}
	return nil
}

// leaveSuspended returns errSuspended if the client moves to another server because that of c can
// perform no calls.
func (c *conn) leaveSuspended() error {
	if c.suspension.Load() != nil && c.engine.leaves(c) {
		return errSuspended
	}
	return nil
}

// outage returns the error of a call that has no time for the outage of the server; nil if there is none.
func (c *conn) outage() error {
	s := c.suspension.Load()
	if s == nil || !s.outage {
		return nil
	}
	return s.error(errOutage)
}

// Outage implements lockkeeper.OutageReporter. It reports that of the server to which e is connected.
func (e *Engine) Outage() error {
	e.mu.Lock()
	c := e.conn
	e.mu.Unlock()
	if c == nil {
		return nil
	}
	return c.outage()
}

// endHasty ends the open calls whose callers have no time for an outage. Whether these calls are made is
// not known.
func (c *conn) endHasty(err error) {
	c.Lock()
	c.endAndUnlock(c.calls.removeHasty(), err)
}

// removeHasty closes the calls that end in an outage, and returns them.
func (cs *calls) removeHasty() (all []*call) {
	for i := range cs.slots {
		if cl := cs.slots[i].call; cl != nil && cl.ctx != nil && roundtrip.EndsInOutage(cl.ctx) {
			all = append(all, cl)
			cs.removeAt(i)
		}
	}
	return all
}

// unanswered returns the error of a call whose caller gave up. It says why the server did not answer, if
// the server has stated that.
func (c *conn) unanswered(cause error) error {
	if s := c.suspension.Load(); s != nil {
		return s.error(cause)
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		cause = &explained{fmt.Sprintf("%s has not answered in time", c.net.RemoteAddr()), cause}
	}
	return unavailable(cause)
}

func (s *suspension) error(cause error) error {
	return &lockkeeper.Error{
		Err:    lockkeeper.ErrUnavailable,
		Reason: s.reason,
		Cause:  &explained{s.why, cause},
	}
}

// explained is a cause whose text is for people, and that matches the end of the call.
type explained struct {
	why   string
	cause error
}

func (e *explained) Error() string { return e.why }
func (e *explained) Unwrap() error { return e.cause }
