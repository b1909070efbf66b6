package main

import (
	"context"
	"os"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// enclosing are the holds that this lk run is nested in, from the innermost on:
// the one that LK_CLAIM names, if it is of the same engine and still held, the one
// that that one was made in, and so on.
func enclosing(ctx context.Context, client *connection) ([]lockkeeper.Status, error) {
	ref, err := lockkeeper.ParseRef(os.Getenv("LK_CLAIM"))
	if err != nil || os.Getenv(engineVariable) != client.url {
		return nil, nil
	}
	var holds []lockkeeper.Status
	for ref != (lockkeeper.Ref{}) && !slices.ContainsFunc(holds, func(s lockkeeper.Status) bool { return s.Ref == ref }) {
		hold, ok, err := heldClaim(ctx, client, ref)
		if err != nil {
			return nil, err // taken for a stranger it would wait for its own parent
		}
		if !ok {
			break
		}
		holds = append(holds, hold)
		ref = hold.Inside
	}
	return holds, nil
}

// heldClaim is the status of the claim ref, if it is held.
func heldClaim(ctx context.Context, client *connection, ref lockkeeper.Ref) (lockkeeper.Status, bool, error) {
	for status, err := range client.List(ctx, lockkeeper.Query{Ref: ref}) {
		return status, status.State == lockkeeper.Held, err
	}
	return lockkeeper.Status{}, false, nil
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
	return replaceByCommand(o.command, append(os.Environ(), "LK_PATH="+o.paths(), "LK_SLOT="))
}
