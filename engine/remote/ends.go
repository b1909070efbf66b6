package remote

import (
	"context"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
)

// ends are what ends a call before its answer: two contexts, that of its caller and the life of its
// client, and a time.
//
// A caller that waited for its contexts would have to wait for three channels, of which the others
// are shared by all callers. So a connection watches the contexts that its calls usually have:
//
//	            usualCalls calls in a row have it                    it ends
//	none ─────────────────────────────────────────────→ watched ─────────────→ none, its calls end
//	  ↑   and no open call relies on the one before        │
//	  └──── another one is watched, or the connection ends ┘
//
// A call relies on the watch of a context if there is one. Its caller waits for the other contexts.
type ends struct {
	contexts [2]context.Context // nil: that of neither ends the call, or the call relies on a watch
	due      time.Time          // zero: the deadline is left to the contexts
	graceful *roundtrip.Context // the call goes on for the grace of its caller; nil: it does not
}

// endsOf returns the ends of a call with ctx.
func endsOf(ctx context.Context) (e ends) {
	own, ok := ctx.(*roundtrip.Context)
	if !ok {
		e.contexts[0] = ctx
	} else {
		e.contexts[0], e.contexts[1] = own.Ends()
		e.due, _ = own.Deadline()
		if own.HasGrace() {
			e.graceful = own
		}
	}
	for k, ctx := range e.contexts {
		if ctx != nil && ctx.Done() == nil {
			e.contexts[k] = nil
		}
	}
	return e
}

// usualCalls is the number of calls in a row whose context is watched.
const usualCalls = 8

// An endWatch watches one context for the calls that rely on it.
type endWatch struct {
	calls int // open calls that rely on it
	stop  func() bool
}

// endWatches are those of a connection: of the contexts of callers, and of the lives of clients.
type endWatches [2]struct {
	latest <-chan struct{} // Done of the context of the latest call
	row    int             // calls in a row that had it
	done   <-chan struct{} // Done of the context that is watched; nil: there is none
	watch  *endWatch
}

// rely makes a call rely on the watches of its contexts, and removes these contexts from e. The lock
// is held, and the call is open.
func (c *conn) rely(cl *call, e *ends) {
	for k, ctx := range e.contexts {
		if ctx == nil {
			continue
		}
		done, w := ctx.Done(), &c.ends[k]
		if w.latest != done {
			w.latest, w.row = done, 0
		}
		w.row++
		if w.done != done {
			if w.row < usualCalls || w.watch != nil && w.watch.calls > 0 {
				continue
			}
			c.unwatch(k)
			watch := new(endWatch)
			w.done, w.watch = done, watch
			watch.stop = context.AfterFunc(ctx, func() { c.ended(k, watch) })
		}
		w.watch.calls++
		cl.relies[k] = w.watch
		e.contexts[k] = nil
	}
	cl.graceful = e.graceful
}

// unwatch ends a watch on which no open call relies. The lock is held.
func (c *conn) unwatch(k int) {
	if w := &c.ends[k]; w.watch != nil {
		w.watch.stop()
		w.done, w.watch = nil, nil
	}
}

// ended is called when the context of a watch has ended. It ends the calls that rely on the watch; those
// with a grace go on for that.
func (c *conn) ended(k int, watch *endWatch) {
	c.Lock()
	if w := &c.ends[k]; w.watch == watch {
		w.done, w.watch = nil, nil
	}
	over := c.calls.relying(k, watch, func(cl *call) (goesOn bool) {
		if k != 0 || cl.graceful == nil {
			return false
		}
		if until, ok := cl.graceful.Outlive(); ok {
			cl.due = until
			c.watch(cl)
		}
		return true
	})
	c.endAndUnlock(over, errOver)
}

// endAndUnlock ends calls that were removed, with an error. The lock is held, and released.
func (c *conn) endAndUnlock(removed []*call, err error) {
	if len(removed) > 0 {
		c.kick() // the caller that reads may be among them
	}
	c.Unlock()
	for _, cl := range removed {
		cl.err = err
		cl.done <- struct{}{}
	}
}

// relying closes the calls that rely on a watch, apart from those that go on, and returns them. No call
// relies on the watch any more.
func (cs *calls) relying(k int, watch *endWatch, goesOn func(*call) bool) (over []*call) {
	for i := range cs.slots {
		cl := cs.slots[i].call
		switch {
		case cl == nil || cl.relies[k] != watch:
		case goesOn(cl):
			cl.relies[k] = nil
		default:
			over = append(over, cl)
			cs.removeAt(i)
		}
	}
	return over
}

// relyNoMore tells the watches that the call is closed. The lock is held.
func (cl *call) relyNoMore() {
	for k, watch := range cl.relies {
		if watch != nil {
			watch.calls--
			cl.relies[k] = nil
		}
	}
}

// outlive lets a call go on for the grace of its caller, whose context has ended. It reports false
// if there is none.
func (c *conn) outlive(e *ends, cl *call, number uint64) bool {
	if e.graceful == nil {
		return false
	}
	until, ok := e.graceful.Outlive()
	if ok {
		c.Lock()
		if open, _ := c.calls.find(number); open != nil {
			cl.due = until
			c.watch(cl)
		}
		c.Unlock()
	}
	return ok
}
