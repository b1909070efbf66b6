package sqllock

import (
	"context"
	"sync/atomic"
	"time"
)

// meter is whom an engine tells how its transactions fare.
type meter struct {
	committed atomic.Pointer[func(commands int, took time.Duration)]
	repeated  atomic.Pointer[func(why string)]
}

// Committed has report called with every transaction of this engine that is committed from now on:
// how many commands were in it, and how long it took from its begin to the database's word that it
// is done. The engine waits for report, so it must be quick, must not call the engine, and may be
// called by several goroutines at once. The latest report counts.
func (e *Engine) Committed(report func(commands int, took time.Duration)) {
	e.meter.committed.Store(&report)
}

// Repeated has report called, as that of Committed, each time that a transaction is done
// again, with what was in its way: "conflict", another transaction was faster; "locked",
// another one kept a lock; "away", the database could not be reached, was not ready, or
// did not say whether it had committed.
func (e *Engine) Repeated(report func(why string)) { e.meter.repeated.Store(&report) }

// whyRepeated are the words for what keeps a transaction from being committed.
var whyRepeated = map[outcome]string{
	retryable:      "conflict",
	lockTimeout:    "locked",
	unreachable:    "away",
	unknownOutcome: "away",
}

func (m *meter) commits(commands int, took time.Duration) {
	if report := m.committed.Load(); report != nil {
		(*report)(commands, took)
	}
}

func (m *meter) repeats(f outcome) {
	if report := m.repeated.Load(); report != nil && whyRepeated[f] != "" {
		(*report)(whyRepeated[f])
	}
}

// Overdue is for how long the session has been over that should have been ended first,
// by the database's clock; 0 if there is none. Any process that has claims or follows them
// ends such sessions within some 20 seconds: more than 30 say that it can't, and
// Examine tells why. It costs one small query, and waits for the database until ctx ends.
func (e *Engine) Overdue(ctx context.Context) (time.Duration, error) {
	x := &examination{e, ctx}
	var at reading
	var first *int64
	err := x.ask(append(e.dialect.clock(&at, false), x.row("SELECT min(deadline_ns) FROM {sessions} WHERE state = 'open'",
		&first))...)
	if err != nil || first == nil {
		return 0, err
	}
	return max(0, at.now-time.Duration(*first)), nil
}
