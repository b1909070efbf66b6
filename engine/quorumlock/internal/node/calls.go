package node

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/attached"
	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
)

// A waiter is a call or a read that somebody waits for.
type waiter struct {
	begin  func(now time.Duration) replica.CallID
	notify attached.Notify       // of an Attach
	answer chan replica.Answer   // has room for the one answer; nil if then is set
	then   func(*replica.Answer) // is called with the answer

	// Guarded by the view.
	id       replica.CallID // once it has begun
	canceled bool           // before it began
}

// An answered waiter has a then that has to be called.
type answered struct {
	waiter *waiter
	answer replica.Answer
}

// answered answers a waiter, or has unlock do it. The caller has locked the view.
func (n *Node) answered(w *waiter, a replica.Answer) {
	if w.then == nil {
		w.answer <- a
		return
	}
	n.answers = append(n.answers, answered{w, a})
}

// unlock unlocks the view, and then calls what was given to Start for each answer since it was locked.
func (n *Node) unlock() {
	answers := n.answers
	n.answers = nil
	n.view.Unlock()
	for i := range answers {
		answers[i].waiter.then(&answers[i].answer)
	}
}

// A mailbox has the calls and reads that have not begun. Those that come while the node is at work begin
// together, so they share an entry of the log, its messages and its syncs.
type mailbox struct {
	more chan struct{} // filled when all gets its first element

	mu     sync.Mutex
	all    []*waiter
	closed bool
}

// put reports false if the mailbox is closed.
func (m *mailbox) put(w *waiter) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	if m.all = append(m.all, w); len(m.all) == 1 {
		select {
		case m.more <- struct{}{}:
		default: // its reader will look again
		}
	}
	return true
}

// take empties the mailbox. spare is memory for what comes next.
func (m *mailbox) take(spare []*waiter) []*waiter {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.all
	m.all = spare[:0]
	return all
}

func (m *mailbox) close() (rest []*waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rest, m.all, m.closed = m.all, nil, true
	return rest
}

// start lets a call or a read begin whose answer goes to then. It may call then itself.
func (n *Node) start(begin func(now time.Duration) replica.CallID, then func(*replica.Answer)) {
	if !n.mail.put(&waiter{begin: begin, then: then}) {
		a := refusal(errClosed)
		then(&a)
	}
}

func (n *Node) ask(ctx context.Context, notify attached.Notify, begin func(now time.Duration) replica.CallID,
) replica.Answer {
	if err := ctx.Err(); err != nil {
		return refusal(roundtrip.NoEffect(err))
	}
	var o *outage
	var began <-chan struct{}
	if roundtrip.EndsInOutage(ctx) {
		o = n.outage.Load()
		began = o.began
		select {
		case <-began:
			return refusal(roundtrip.NoEffect(o.err))
		default:
		}
	}
	w := &waiter{begin: begin, notify: notify, answer: make(chan replica.Answer, 1)}
	if !n.mail.put(w) {
		return refusal(roundtrip.NoEffect(errClosed))
	}
	select {
	case a := <-w.answer:
		return a
	case <-ctx.Done():
		return n.giveUp(w, context.Cause(ctx))
	case <-began:
		return n.giveUp(w, o.err)
	}
}

// makeCalls begins what comes into the mailbox, until the node is closed.
func (n *Node) makeCalls() {
	var spare []*waiter
	for {
		select {
		case <-n.quit:
			return
		case <-n.mail.more:
		}
		runtime.Gosched() // callers that are about to call share the entry
		calls := n.mail.take(spare)
		n.beginTogether(calls)
		clear(calls)
		spare = calls
	}
}

func (n *Node) beginTogether(calls []*waiter) {
	n.view.Lock()
	defer n.unlock()
	if n.closed {
		for _, w := range calls {
			n.answered(w, refusal(errClosed))
		}
		return
	}
	now := n.config.Clock()
	n.replica.Together(func() {
		for _, w := range calls {
			if !w.canceled {
				w.id = w.begin(now)
				n.waiters[w.id] = w
			}
		}
	})
	n.carryOut(now)
}

// suspendedCall is the end of a call of a suspended node. Its text is why the node is suspended.
type suspendedCall struct{ why, end error }

func (e *suspendedCall) Error() string   { return e.why.Error() }
func (e *suspendedCall) Unwrap() []error { return []error{e.why, e.end} }

// giveUp ends a call or a read whose caller waits no longer. If the answer has come meanwhile, it
// counts.
func (n *Node) giveUp(w *waiter, err error) replica.Answer {
	n.view.Lock()
	defer n.view.Unlock()
	select {
	case a := <-w.answer:
		return a
	default:
	}
	if w.id == 0 {
		w.canceled, err = true, roundtrip.NoEffect(err)
	} else {
		delete(n.waiters, w.id)
		n.replica.Cancel(w.id)
	}
	if n.suspended && !errors.Is(err, errOutage) {
		err = &suspendedCall{n.whySuspended(), err}
	}
	return refusal(err)
}
