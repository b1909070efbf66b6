package main

import (
	"context"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

func (a *app) newRun() *cobra.Command {
	o := &runOptions{
		units: 1, wait: lockkeeper.Forever, ttl: lockkeeper.DefaultTTL, conflictCode: exitNotAcquired,
		onYield: supervise.Ignore, onLost: supervise.Terminate,
	}
	cmd := &cobra.Command{
		Use:   "run PATH... -- COMMAND [ARG...]",
		Short: "Run a command while holding locks",
		Long: `Run a command while holding locks. Each PATH is locked with all paths below it:
exclusively, shared (-s), or with a limit (-n). lk takes several paths together or not
at all. --with adds paths in another mode.

lk waits in line until the locks are free, and prints the holder. If a server or a
database can't be reached, or is draining, lk keeps trying until --wait has passed, or
without --wait for the TTL.

Signals are passed on to the command. If lk can't renew the locks, it stops the
command's process group before the engine grants them to anybody else: TERM a third of
the TTL (at most 5s) before the end, KILL at the end. The guard, a second process of lk,
does the same if lk stands still. lk does not wait for background processes that the
command leaves behind (only briefly after TERM or Ctrl-C). Restarts of a server or a
database within the TTL do not disturb the command. If the engine can't be reached when
the command ends, lk tries to release for less than 2s.

After kill -9 of lk, the guard kills the process group, and the locks are free at once.
On a server or a database they are free after the TTL instead if a process of the command
still runs, if --cleanup was given (it is not run), or if the guard was killed too.
Processes that left the group (setsid), or run elsewhere (ssh, a container), are not
stopped and can outlive the locks. A resource can refuse an old holder by LK_FENCE.

Environment of the command:
  LK_PATH         the paths, one a line
  LK_FENCE        a number that rises with every grant; empty if several lk run, one
                  within another, hold the paths
  LK_CLAIM        the claim, for lk why
  LK_SLOT         the slot, from 1 to N, of one unit under -n or N: (of the first such
                  path); empty if it takes several units
  LOCKKEEPER_URL  the engine, for an lk within the command
A run within a run that holds its paths starts at once, with the fence of those locks.

` + exitHelp + systemNote(runtime.GOOS),
		Example: `  # run tests while holding mydatabase/mytest
  lk run mydatabase/mytest -- go test ./...

  # share a lock with other readers
  lk run --shared testsite -- ./read-only-test

  # at most three at a time
  lk run -n 3 router1/snmp -- snmpwalk router1

  # two locks in different modes, and a clean-up before they are released
  lk run mydatabase --with s:testsite --cleanup ./reset -- ./load-test

  # don't wait
  lk run --try deploy -- ./deploy || echo "somebody else deploys"

  # tell waiters who holds the lock, and why
  lk run --as nightly --note "load test" --link "$BUILD_URL" mydatabase -- ./load-test`,
		DisableFlagsInUseLine: true,
		Args:                  a.checked(func(cmd *cobra.Command, args []string) { o.check(cmd, args, &a.bad) }),
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			return a.run(cmd.Context(), o)
		}),
	}
	o.addFlags(cmd, a)
	return cmd
}

// run takes the locks, runs the command, and releases. The plan goes down in three parts: how to reach
// the engine (trial), what to wait for (wanted), and what to run (job).
func (a *app) run(ctx context.Context, o *runOptions) error {
	signals := make(chan os.Signal, 16)
	supervise.NotifySignals(signals) // for good: lk exits after its run

	p := o.plan()
	client, err := a.openForRun(ctx, p, signals)
	if client != nil {
		defer func() { client.closeBy(time.Now().Add(releaseTime)) }()
	}
	if err != nil {
		return err
	}
	hold, fence, err := a.claimUncovered(ctx, client, p.wanted, signals)
	p.job.fence = fence
	if err != nil {
		return err
	}
	if hold == nil {
		client.Close()
		return p.job.become(signals)
	}
	return a.runHolding(client, hold, p.job, signals)
}

// openForRun opens the engine, within the bound of the wait. A signal ends the attempt. The
// connection that it returns with an error must be closed too.
func (a *app) openForRun(ctx context.Context, p plan, signals <-chan os.Signal) (*connection, error) {
	if err := supervise.FindCommand(p.job.command[0]); err != nil {
		return nil, err // before an hour of waiting
	}
	ctx, opened := stoppedBy(ctx, signals, anySignal)
	client, err := a.reach(ctx, p.trial, lockkeeper.SessionTTL(p.job.ttl), lockkeeper.SessionLabel(p.label))
	if stopped := opened(); stopped != nil {
		return client, stopped
	}
	if err == nil {
		a.printNotices(client)
	}
	return client, err
}
