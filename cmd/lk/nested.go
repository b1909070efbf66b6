package main

import (
	"context"
	"os"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// parentClaim is the hold that this lk run is nested in: the one that LK_CLAIM
// names, if it is of the same engine and still held.
func parentClaim(ctx context.Context, client *connection) (lockkeeper.Status, bool) {
	ref, err := lockkeeper.ParseRef(os.Getenv("LK_CLAIM"))
	if err != nil || os.Getenv(engineVariable) != client.url {
		return lockkeeper.Status{}, false
	}
	for status, err := range client.List(ctx, lockkeeper.Query{Ref: ref}) {
		return status, err == nil && status.State == lockkeeper.Held
	}
	return lockkeeper.Status{}, false
}

// covers reports whether whoever has the hold has all of targets already:
// an exclusive hold covers everything at its path and below, a shared one what
// is shared there. Permits cover nothing: each run takes its own.
func covers(hold lockkeeper.Status, targets []lockkeeper.Target) bool {
	for _, t := range targets {
		covered := slices.ContainsFunc(hold.Grants, func(g lockkeeper.Grant) bool {
			if !g.Path.Covers(t.Path) {
				return false
			}
			return g.Mode == lockkeeper.ModeExclusive ||
				g.Mode == lockkeeper.ModeShared && t.Mode == lockkeeper.ModeShared
		})
		if !covered {
			return false
		}
	}
	return true
}

// become replaces lk by the command, which runs under its parent's hold: in the
// parent's process group, so that whoever guards that hold stops it too.
func (o *runOptions) become(signals <-chan os.Signal) error {
	select {
	case s := <-signals:
		return interrupted(s)
	default:
	}
	return replaceByCommand(o.command, append(os.Environ(), "LK_PATH="+o.paths(), "LK_SLOT="))
}
