package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

// claimUncovered waits for the targets that no run around this one covers. The hold is nil if they
// cover all. fence is that of the one hold that has all targets; 0 if several holds have them.
func (a *app) claimUncovered(
	ctx context.Context, client *connection, w *wanted, signals <-chan os.Signal,
) (hold *lockkeeper.Hold, fence uint64, err error) {
	for {
		holds, err := enclosing(ctx, client)
		if err != nil {
			return nil, 0, err
		}
		targets := uncovered(holds, w.targets)
		if len(targets) == 0 {
			return nil, fenceOver(holds, w.targets), nil
		}
		w.around = holds
		hold, err := a.acquire(ctx, client, w, targets, signals)
		if lostPosition(err) && w.wait == lockkeeper.Forever {
			a.note("%s: lk stood still for longer than its TTL and lost its position in line; it waits again", w.all())
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		// Runs around this one may have ended while it waited in the background. Then it must
		// claim what they covered.
		if len(targets) < len(w.targets) {
			holds, err = enclosing(ctx, client)
		}
		if err != nil || len(uncovered(holds, w.targets)) > len(targets) {
			hold.Close()
			continue
		}
		if len(targets) == len(w.targets) {
			fence = hold.Fence()
		}
		return hold, fence, nil
	}
}

// lostPosition reports whether a wait ended because this process stood still for longer than its TTL,
// as by Ctrl-Z.
func lostPosition(err error) bool {
	return errors.Is(err, lockkeeper.Expired) || errors.Is(err, lockkeeper.Suspended)
}

// mostEnclosing bounds the chain of runs: the claims named by others may form a cycle.
const mostEnclosing = 64

// enclosing returns the holds that this lk run is nested in, the innermost first: the claim that
// LK_CLAIM names, if it is in the same engine, the claim in which that one was made, and so on. Claims
// that have ended are left out.
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
			return nil, err // without this answer it could wait for its own parent
		}
		if hold.State == lockkeeper.Held {
			holds = append(holds, hold)
		}
		ref = hold.Inside
	}
	return holds, nil
}

// claimOf returns the status of the claim ref; the zero Status if it is unknown.
func claimOf(ctx context.Context, client *connection, ref lockkeeper.Ref) (lockkeeper.Status, error) {
	for status, err := range client.List(ctx, lockkeeper.Query{Ref: ref, Brief: true}) {
		return status, err
	}
	return lockkeeper.Status{}, nil
}

// hintPatience bounds the query for the holders of a path, which the hint of a refusal needs.
const hintPatience = time.Second

// innerPatience bounds how long a release waits for runs inside.
const innerPatience = time.Second

// innerPoll is the pause between two checks whether runs inside hold anything.
const innerPoll = 20 * time.Millisecond

// awaitInner waits until no run inside this one holds anything, for innerPatience at most. If the lk
// of an inner run was killed, its guard is about to kill its command, which relies on this hold too.
// It reports whether the engine answered.
func awaitInner(client *connection, hold *lockkeeper.Hold) (answered bool) {
	ctx, cancel := context.WithTimeout(context.Background(), innerPatience)
	defer cancel()
	tick := time.NewTicker(innerPoll)
	defer tick.Stop()
	for {
		held, err := holdsInside(ctx, client, hold.Ref())
		if err != nil {
			return false // a problem of the engine must not prolong the hold
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

// uncovered returns the targets that the holds do not cover. An exclusive hold covers all targets at
// its path and below, a shared one the shared targets there. Permits cover nothing: each run takes its
// own. A claim of a covered target would wait for the holds around it.
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

// fenceOver returns the fence of the one hold that covers all targets; 0 if none covers them alone.
func fenceOver(holds []lockkeeper.Status, targets []lockkeeper.Target) uint64 {
	for i, hold := range holds {
		if len(uncovered(holds[i:i+1], targets)) == 0 {
			return hold.Fence
		}
	}
	return 0
}

// become replaces lk by the command, which runs under the holds around it. It stays in the process
// group of the innermost run, whose guard stops it with that run.
func (j job) become(signals <-chan os.Signal) error {
	select {
	case s := <-signals:
		return interrupted(s)
	default:
	}
	command := j.command
	if j.cleanup != "" {
		command = withCleanup(command, j.cleanup)
	}
	return supervise.Replace(command, append(os.Environ(), "LK_PATH="+j.paths, "LK_FENCE="+fenceText(j.fence), "LK_SLOT="))
}
