package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// emptyRetry is the pause before the next list, after a failed one or on a shared engine.
const emptyRetry = time.Second

// awaitEmpty waits until the engine has no held or waiting claims. The caller has closed the gate
// to new claims. If the gate is the only way to the engine, serves is nil, and an empty engine
// stays empty.
//
// On a shared engine clients can continue at another server. Then awaitEmpty waits only for claims
// of sessions that this server serves, as serves reports. If a list fails, awaitEmpty tries again; but
// a node that was removed from its cluster has nothing. The error is that of ctx.
func awaitEmpty(ctx context.Context, g *access.Gate, e lockkeeper.Engine, serves func(session string) bool,
	log *slog.Logger) error {
	if err := g.Settled(ctx); err != nil {
		return err
	}
	for {
		held, waiting, err := countLive(ctx, e, lockkeeper.Query{Brief: true}, serves)
		n := held + waiting
		if err == nil && n > 0 && serves == nil {
			err = followUntilEmpty(ctx, e)
		}
		if errors.Is(err, quorumlock.ErrRemoved) {
			log.Info("draining: nobody is served here any more", "why", err)
			return nil
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("draining: the engine can't tell what it has", "error", err, "again_in", emptyRetry)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && n == 0:
			return nil
		case err != nil || serves != nil:
			timer := time.NewTimer(emptyRetry)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
		}
	}
}

// countLive counts the held and waiting claims of the sessions that serves reports; of all if it is
// nil.
func countLive(ctx context.Context, e lockkeeper.Engine, q lockkeeper.Query, serves func(session string) bool) (
	held, waiting int, err error) {
	for st, err := range e.List(ctx, q) {
		switch {
		case err != nil:
			return held, waiting, err
		case !isLive(st.State) || serves != nil && !serves(st.Ref.Session):
		case st.State == lockkeeper.Held:
			held++
		default:
			waiting++
		}
	}
	return held, waiting, ctx.Err()
}

// served returns the function that reports whether the claims of a session keep this server alive while it drains; nil
// if all do, because nobody else serves them. Of an engine that others reach directly, those do whose clients are
// connected to this server, and names and HTTP claims that were refreshed here within their TTL.
func (s *service) served() func(session string) bool {
	if s.engine.Guarantees().Reach == lockkeeper.InProcess {
		return nil
	}
	return func(session string) bool { return s.wire.Serves(session) || s.gate.Refreshed(session) }
}

// aboutDraining is about. While this server drains, it counts the claims alone that keep it alive.
func (s *service) aboutDraining(ctx context.Context) lockkeeper.ServerState {
	state := s.about(ctx)
	if _, drains := s.draining(); !drains {
		return state
	}
	if serves := s.served(); serves != nil {
		held, waiting, _ := countLive(ctx, s.engine, lockkeeper.Query{Brief: true, Stale: true}, serves)
		state.Held, state.Waiting = int64(held), int64(waiting) // of a list that may be old or cut short, as in about
	}
	return state
}

func isLive(s lockkeeper.State) bool { return s == lockkeeper.Held || s == lockkeeper.Waiting }

// followUntilEmpty follows the claims of an engine until all listed ones have ended. The caller
// counts again, since the first list may not be complete when the last listed claim ends.
func followUntilEmpty(ctx context.Context, e lockkeeper.Engine) error {
	live := make(map[lockkeeper.Ref]bool)
	for st, err := range e.List(ctx, lockkeeper.Query{Follow: true, Brief: true}) {
		if err != nil {
			return err
		}
		if isLive(st.State) {
			live[st.Ref] = true
		} else {
			delete(live, st.Ref)
		}
		if len(live) == 0 {
			return nil
		}
	}
	return ctx.Err()
}
