package main

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

// mostEnclosing bounds how far out is looked: names may go round in a circle.
const mostEnclosing = 64

// enclosing are the holds that this lk run is nested in, from the innermost on:
// the one that LK_CLAIM names, if it is of the same engine and still held, the one
// that that one was made in, and so on, also around one that has ended.
func enclosing(ctx context.Context, client *connection) ([]lockkeeper.Status, error) {
	ref, err := lockkeeper.ParseRef(os.Getenv("LK_CLAIM"))
	if err != nil || os.Getenv(engineVariable) != client.url {
		return nil, nil
	}
	var holds []lockkeeper.Status
	for range mostEnclosing {
		if ref == (lockkeeper.Ref{}) {
			break
		}
		hold, err := claimOf(ctx, client, ref)
		if err != nil {
			return nil, err // taken for a stranger it would wait for its own parent
		}
		if hold.State == lockkeeper.Held {
			holds = append(holds, hold)
		}
		ref = hold.Inside
	}
	return holds, nil
}

// claimOf is the status of the claim ref; the zero Status if it is unknown.
func claimOf(ctx context.Context, client *connection, ref lockkeeper.Ref) (lockkeeper.Status, error) {
	for status, err := range client.List(ctx, lockkeeper.Query{Ref: ref, Brief: true}) {
		return status, err
	}
	return lockkeeper.Status{}, nil
}

// innerPatience is how long a release is put off at most for runs inside.
const innerPatience = time.Second

// innerPoll is the pause between two checks whether runs inside hold anything.
const innerPoll = 20 * time.Millisecond

// awaitInner waits, for a moment, until no run inside this one holds anything. It
// is for those whose lk was killed: their guards are about to end their commands,
// which rely on this hold too. One that was left in the background on purpose is
// not waited for any longer. It reports whether the engine answered.
func awaitInner(client *connection, hold *lockkeeper.Hold) (answered bool) {
	ctx, cancel := context.WithTimeout(context.Background(), innerPatience)
	defer cancel()
	tick := time.NewTicker(innerPoll)
	defer tick.Stop()
	for {
		held, err := holdsInside(ctx, client, hold.Ref())
		if err != nil {
			return false // don't keep the hold because the engine has a problem
		}
		if !held {
			return true
		}
		select {
		case <-tick.C:
		case <-hold.Done():
			return true
		case <-ctx.Done():
			return true
		}
	}
}

// holdsInside reports whether a claim that was made inside ref is held.
func holdsInside(ctx context.Context, client *connection, ref lockkeeper.Ref) (bool, error) {
	for status, err := range client.List(ctx, lockkeeper.Query{Brief: true}) {
		if err != nil {
			return false, err
		}
		if status.State == lockkeeper.Held && status.Inside == ref {
			return true, nil
		}
	}
	return false, nil
}

// uncovered are those of targets that whoever has the holds does not have already:
// an exclusive hold covers everything at its path and below, a shared one what is
// shared there. Permits cover nothing: each run takes its own. What is covered is
// not claimed again, since it would wait for the holds around it.
func uncovered(holds []lockkeeper.Status, targets []lockkeeper.Target) []lockkeeper.Target {
	return slices.DeleteFunc(slices.Clone(targets), func(t lockkeeper.Target) bool {
		return slices.ContainsFunc(holds, func(hold lockkeeper.Status) bool { return covers(hold, t) })
	})
}

func covers(hold lockkeeper.Status, t lockkeeper.Target) bool {
	return slices.ContainsFunc(hold.Grants, func(g lockkeeper.Grant) bool {
		return g.Path.Covers(t.Path) &&
			(g.Mode == lockkeeper.ModeExclusive || g.Mode == lockkeeper.ModeShared && t.Mode == lockkeeper.ModeShared)
	})
}

// become replaces lk by the command, which runs under the holds around it: in the
// process group of the innermost run, so that whoever guards those holds stops it
// too.
func (o *runOptions) become(signals <-chan os.Signal) error {
	select {
	case s := <-signals:
		return interrupted(s)
	default:
	}
	return supervise.Replace(o.command, append(os.Environ(), "LK_PATH="+o.paths(), "LK_SLOT="))
}
