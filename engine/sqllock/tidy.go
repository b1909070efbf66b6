package sqllock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// How often a process clears up, how long what has ended is kept for people and for
// followers, and how long a session is over when whoever comes by ends it, if nobody
// wants what it has.
const (
	tidyEvery = 15 * time.Second
	keepEnded = time.Minute
	leaveDead = 5 * time.Second

	mostSilent = 1000 // sessions at once that were not renewed here
)

// tidy ends sessions that nobody else has ended, and removes rows that nobody needs. Any
// process does it, and several may at once.
func (e *Engine) tidy() {
	ctx, cancel := context.WithTimeout(e.cutting, attemptBound)
	defer cancel()
	var at reading
	var dead []string
	err := e.reading(ctx, func(l link) error {
		if err := l.send(ctx, e.dialect.clock(&at, false)); err != nil {
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
		return // it is done again soon, by this process or another one
	}
	for _, id := range dead {
		e.sweep(id)
	}
	e.forgetSilent(ctx, at.now)
}

// forgetSilent forgets the sessions that were attached here and are no longer, as others
// have ended them or attached them elsewhere.
func (e *Engine) forgetSilent(ctx context.Context, now time.Duration) {
	epochs := e.local.silent(time.Now())
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
			e.local.renewed(id, s.Epoch, max(s.Deadline-now, 0)) // by somebody elsewhere who knows its key
		}
	}
}

// trouble makes of what went wrong with jobs an ErrUnavailable that says what would help; or an
// ErrDenied, if the rights are missing, which won't come back by itself. Of what may have happened
// nevertheless, and of renewals, whose holders go on for as long as they may, it is an ErrUnavailable.
func (e *Engine) trouble(err error, jobs []*job) error {
	var told *lockkeeper.Error
	if errors.As(err, &told) {
		return told
	}
	begun := slices.ContainsFunc(jobs, func(j *job) bool { return j.unsure || j.renews })
	if refused := e.db.refusal(err); errors.Is(refused, lockkeeper.ErrDenied) && !begun {
		return refused
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "using the database", Cause: err}
}
