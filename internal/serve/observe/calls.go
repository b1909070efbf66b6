package observe

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/exposition"
)

// op is a method of an engine.
type op int

const (
	opAttach op = iota
	opOpen      // an attach and a claim
	opRenew
	opClaim
	opEnd
	opList
	ops
)

var opNames = [ops]string{
	opAttach: "attach", opOpen: "open", opRenew: "renew", opClaim: "claim", opEnd: "end", opList: "list",
}

// One of sampled calls is timed at an engine that answers from memory: reading the clock twice
// would cost a tenth of such a call.
const sampled = 64

// errorNames lists the errors that have a label of their own.
var errorNames = []struct {
	err  error
	name string
}{
	{lockkeeper.ErrInvalid, "invalid"}, {lockkeeper.ErrUnsupported, "unsupported"}, {lockkeeper.ErrDenied, "denied"},
	{lockkeeper.ErrNotHeld, "not held"}, {lockkeeper.ErrSession, "session"}, {lockkeeper.ErrUnavailable, "unavailable"},
	{nil, "other"},
}

// calls counts the calls of an engine.
type calls struct {
	of     [ops]callsOf
	errors []*exposition.Counter // as errorNames
}

// callsOf counts the calls of one method. The padding gives each counter a cache line of its own,
// so that processors don't contend for it.
type callsOf struct {
	n       atomic.Uint64
	_       [56]byte
	seconds *exposition.Histogram
}

func (c *calls) register(m *Metrics) {
	seconds := m.registry.Histograms("lockkeeper_engine_call_seconds",
		"How long the engine took to answer; of an engine in memory one call in 64 is timed.", "op", shortBuckets)
	m.registry.Funcs(exposition.KindCounter, "lockkeeper_engine_calls_total", "Calls of the engine, by method.", "op",
		opNames[:], func(i int) float64 { return float64(c.of[i].n.Load()) })
	for i := range c.of {
		c.of[i].seconds = seconds.With(opNames[i])
	}
	failed := m.registry.Counters("lockkeeper_engine_errors_total",
		"Calls that the engine answered with an error, by kind.", "error")
	for _, e := range errorNames {
		c.errors = append(c.errors, failed.With(e.name))
	}
}

// failed counts an error.
func (c *calls) failed(err error) {
	for i, e := range errorNames {
		if e.err == nil || errors.Is(err, e.err) {
			c.errors[i].Inc()
			return
		}
	}
}

// Counted returns an engine that forwards to e, and counts and times the calls. It is as safe for
// concurrent use as e. Of e's optional abilities it has only that of a lockkeeper.GroupCommitter, or else that
// of a lockkeeper.Starter.
func (m *Metrics) Counted(e lockkeeper.Engine) lockkeeper.Engine {
	c := &counting{Engine: e, calls: &m.calls, every: 1}
	if e.Guarantees().Prompt {
		c.every = sampled
	}
	if group, ok := e.(lockkeeper.GroupCommitter); ok {
		return &countingGroup{c, group}
	}
	if starter, ok := e.(lockkeeper.Starter); ok {
		return &countingStarter{c, starter}
	}
	return c
}

// counting is an engine whose calls are counted.
type counting struct {
	lockkeeper.Engine
	calls *calls
	every uint64 // one of that many calls is timed
}

// begin counts a call, and returns its start; the zero time if it is not timed.
func (c *counting) begin(o op) (at time.Time) {
	if n := c.calls.of[o].n.Add(1); n%c.every == 0 {
		at = time.Now()
	}
	return at
}

// end counts the error of a call, and its time.
func (c *counting) end(o op, began time.Time, err error) {
	if !began.IsZero() {
		c.calls.of[o].seconds.Observe(time.Since(began).Seconds())
	}
	if err != nil {
		c.calls.failed(err)
	}
}

// Attach implements lockkeeper.Engine.
func (c *counting) Attach(ctx context.Context, s lockkeeper.Session,
	notify func([]lockkeeper.Status)) (lockkeeper.Lease, error) {
	at := c.begin(opAttach)
	lease, err := c.Engine.Attach(ctx, s, notify)
	c.end(opAttach, at, err)
	return lease, err
}

// Renew implements lockkeeper.Engine.
func (c *counting) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	at := c.begin(opRenew)
	lease, err := c.Engine.Renew(ctx, k)
	c.end(opRenew, at, err)
	return lease, err
}

// Claim implements lockkeeper.Engine.
func (c *counting) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	at := c.begin(opClaim)
	st, err := c.Engine.Claim(ctx, k, w)
	c.end(opClaim, at, err)
	return st, err
}

// End implements lockkeeper.Engine.
func (c *counting) End(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) error {
	at := c.begin(opEnd)
	err := c.Engine.End(ctx, k, e)
	c.end(opEnd, at, err)
	return err
}

// List implements lockkeeper.Engine. Its time is that of reading the whole list. A list that
// follows is counted, not timed.
func (c *counting) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	list := c.Engine.List(ctx, q)
	return func(yield func(lockkeeper.Status, error) bool) {
		at := c.begin(opList)
		if q.Follow {
			at = time.Time{}
		}
		var failed error
		defer func() { c.end(opList, at, failed) }()
		for st, err := range list {
			failed = err
			if !yield(st, err) {
				return
			}
		}
	}
}

// Engine connects the metrics to the optional reports of an engine: commits of its journal or
// database, repeated transactions, polite steals, and overdue ends of sessions. e must not be a decorated engine,
// and must not be in use yet.
func (m *Metrics) Engine(e lockkeeper.Engine) {
	if r, ok := e.(lockkeeper.CommitReporter); ok {
		r.ReportCommits(func(calls int, took time.Duration) {
			m.entries.Observe(float64(calls))
			m.sync.Observe(took.Seconds())
		})
	}
	if r, ok := e.(lockkeeper.RepeatReporter); ok {
		r.ReportRepeats(func(why string) { m.repeats.With(why).Inc() })
	}
	if r, ok := e.(lockkeeper.HandshakeReporter); ok {
		r.ReportHandshakes(func(took time.Duration) { m.handshakes.Observe(took.Seconds()) })
	}
	if d, ok := e.(lockkeeper.OverdueReporter); ok {
		m.debtor.Store(&d)
	}
}

// overdueTime bounds the call of Overdue.
const overdueTime = 2 * time.Second

// overdue returns for how long the oldest expired session has waited for the engine to end it. It
// is 0 if there is none, if the engine has no such report, and if it does not answer, which
// readiness shows.
func (m *Metrics) overdue() time.Duration {
	d := m.debtor.Load()
	if d == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), overdueTime)
	defer cancel()
	over, err := (*d).Overdue(ctx)
	if err != nil {
		return 0
	}
	return over
}
