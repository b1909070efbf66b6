package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// emptyRetry is when an engine is asked again that could not tell what it has, or that
// others use too.
const emptyRetry = time.Second

// awaitEmpty waits until nothing is held at the engine and nobody waits. The gate,
// which is the only way to it, takes no new claims: once empty, it stays so. An
// engine that can't tell what it has is not empty, and is asked again.
//
// Where there are other ways to the engine it is never known to be empty, and need not
// be: clients go on by those. Then serves tells which sessions have a connection here,
// and those alone are waited for. Else it is nil. The error is ctx's.
func awaitEmpty(ctx context.Context, g *access.Gate, e lockkeeper.Engine, serves func(session string) bool,
	log *slog.Logger) error {
	if err := g.Settled(ctx); err != nil {
		return err
	}
	for {
		n, err := countLive(ctx, e, serves)
		if err == nil && n > 0 && serves == nil {
			err = followUntilEmpty(ctx, e)
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

// countLive counts what is held, and those who wait, of the sessions that serves tells.
func countLive(ctx context.Context, e lockkeeper.Engine, serves func(session string) bool) (n int, err error) {
	for st, err := range e.List(ctx, lockkeeper.Query{Brief: true}) {
		if err != nil {
			return n, err
		}
		if isLive(st.State) && (serves == nil || serves(st.Ref.Session)) {
			n++
		}
	}
	return n, ctx.Err()
}

func isLive(s lockkeeper.State) bool { return s == lockkeeper.Held || s == lockkeeper.Waiting }

// followUntilEmpty follows the claims of an engine that has some, until all that it
// saw have ended. Whether that were all is for the next count to tell.
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
