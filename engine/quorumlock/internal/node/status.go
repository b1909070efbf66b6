package node

import (
	"context"
	"errors"
	"slices"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
)

// Status returns the status of the replica.
func (n *Node) Status() replica.Status {
	n.view.Lock()
	defer n.view.Unlock()
	return n.replica.Status()
}

// Await returns the first status for which is returns true. It sees the present status, and then that of
// each tick at which it or Suspended has changed. If ctx ends before, or the node is closed, the error
// matches ErrUnavailable.
func (n *Node) Await(ctx context.Context, is func(replica.Status) bool) (replica.Status, error) {
	for {
		n.view.Lock()
		s, closed, news := n.replica.Status(), n.closed, n.statusNews
		n.view.Unlock()
		if is(s) {
			return s, nil
		}
		if closed {
			return s, replica.Unavailable(errClosed)
		}
		select {
		case <-news:
		case <-ctx.Done():
			return s, replica.Unavailable(context.Cause(ctx))
		}
	}
}

// News returns a channel that is closed in the next tick at which the status or Suspended has changed.
func (n *Node) News() <-chan struct{} {
	n.view.Lock()
	defer n.view.Unlock()
	return n.statusNews
}

// followStatus notes the status once in each tick. The caller has locked the view.
func (n *Node) followStatus() {
	s := n.replica.Status()
	if equal(&s, &n.status) && n.suspended == n.statusSuspended {
		return
	}
	n.status, n.statusSuspended = s, n.suspended
	close(n.statusNews)
	n.statusNews = make(chan struct{})
}

// equal reports whether two statuses differ at most in what was applied.
func equal(a, b *replica.Status) bool {
	return a.Term == b.Term && a.Leader == b.Leader && a.Ready == b.Ready && a.Contact == b.Contact &&
		a.Rules == b.Rules && errors.Is(a.Failed, b.Failed) && slices.Equal(a.Voters, b.Voters) &&
		slices.Equal(a.Learners, b.Learners)
}
