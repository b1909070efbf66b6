package sqllock

import (
	"context"
	"sync/atomic"
	"time"
)

// meter has the functions that an engine calls for its transactions.
type meter struct {
	committed atomic.Pointer[func(commands int, took time.Duration)]
	repeated  atomic.Pointer[func(why string)]
}

// ReportCommits makes the engine call report after every commit from now on, with the number of
// commands and the time from begin to commit. The engine waits for report: it must be quick, must
// not call the engine, and several goroutines may call it at once. The latest report counts.
func (e *Engine) ReportCommits(report func(commands int, took time.Duration)) {
	e.meter.committed.Store(&report)
}

// ReportRepeats makes the engine call report, as that of ReportCommits, each time that it repeats a
// transaction, with the cause: "conflict", another transaction was faster; "locked", another one
// kept a lock; "away", the database could not be reached, was not ready, or did not say whether it
// had committed.
func (e *Engine) ReportRepeats(report func(why string)) { e.meter.repeated.Store(&report) }

// whyRepeated are the causes that ReportRepeats reports.
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

// Overdue returns for how long the session that should have ended first is over, by the database's
// clock; 0 if there is none. Any process with claims or watchers ends such sessions within some 20
// seconds; more than 30 mean that it can't, and Examine says why. It costs one small query, and
// waits for the database until ctx ends.
func (e *Engine) Overdue(ctx context.Context) (time.Duration, error) {
	x := &examination{e, ctx}
	var at reading
	var first *int64
	err := x.ask(append(e.dialect.clock(&at, 0), x.row("SELECT min(deadline_ns) FROM {sessions} WHERE state = 'open'",
		&first))...)
	if err != nil || first == nil {
		return 0, err
	}
	return max(0, at.now-time.Duration(*first)), nil
}
