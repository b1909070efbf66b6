package sqllock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// How often a process cleans up, how long it keeps rows of ended claims for people and watchers,
// and how long after its deadline any process ends a session whose holds nobody wants.
const (
	cleanEvery = 15 * time.Second
	keepEnded  = time.Minute
	leaveDead  = 5 * time.Second

	mostExpired = 1000 // sessions that one clean-up looks for
)

// cleanUp ends expired sessions that no transaction has met, and removes rows that nobody needs.
// Every process does it, and several may at once.
func (e *Engine) cleanUp() {
	ctx, cancel := context.WithTimeout(e.cutting, attemptBound)
	defer cancel()
	var at reading
	var dead []string
	err := e.reading(ctx, func(l link) error {
		if err := l.send(ctx, e.dialect.clock(&at, 0)); err != nil {
			return err
		}
		if err := l.send(ctx,
			[]statement{e.dialect.overdue(at.now-leaveDead, func(id string) { dead = append(dead, id) })}); err != nil {
			return err
		}
		for _, s := range e.dialect.purge(at.now, at.now-keepEnded) {
			if err := l.send(ctx, []statement{s}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return // the next clean-up, of this process or another one, repeats it
	}
	for _, id := range dead {
		e.sweep(id)
	}
	e.forgetExpired(ctx, at.now)
}

// forgetExpired removes sessions that were attached here and have ended or are attached elsewhere.
func (e *Engine) forgetExpired(ctx context.Context, now time.Duration) {
	epochs := e.local.expired(time.Now())
	if len(epochs) == 0 {
		return
	}
	ids := slices.Sorted(maps.Keys(epochs))
	rows := make(map[string]*session)
	if err := e.dialect.with(ctx, e.db.pool, func(l link) error {
		return l.send(ctx, []statement{e.dialect.sessions(ids, false, func(s *session) { rows[s.ID] = s })})
	}); err != nil {
		return
	}
	for _, id := range ids {
		switch s := rows[id]; {
		case s == nil || s.Closed:
			e.local.detach(id, epochs[id])
		case s.process != e.process:
			e.local.detach(id, s.Epoch)
		default:
			e.local.renewed(id, s.Epoch, max(s.Deadline-now, 0)) // another process renews it with its key
		}
	}
}

// unavailableBecause turns the error of a transaction into an ErrUnavailable that says what would
// help, or into an ErrDenied if rights are missing. It is an ErrUnavailable if the jobs may have
// happened, and for renewals, whose holders go on until their deadline.
func (e *Engine) unavailableBecause(err error, jobs []*job) error {
	var refused *lockkeeper.Error
	if errors.As(err, &refused) {
		return refused
	}
	begun := slices.ContainsFunc(jobs, func(j *job) bool { return j.unsure || j.renews })
	if denied := e.db.refusal(err); errors.Is(denied, lockkeeper.ErrDenied) && !begun {
		return denied
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "using the database", Cause: err}
}
