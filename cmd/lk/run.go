package main

import (
	"context"
	"os"
	"os/signal"
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
		Long: `Run a command while holding locks: PATH and all that is below it, for this
command alone, or shared with others (-s), or for a limited number of them (-n).
Several paths are taken together or not at all; --with adds some that are taken
otherwise, as in --with s:testsite --with 3:router1/snmp.

lk waits in line until the locks are free, and names the holder, again every two
minutes. If a server or database can't be reached yet, or drains, lk tries until the
bound of the wait, or without a bound for the TTL. lk passes its signals on to the
command. If lk can't keep the locks, it stops the command's process group before
anyone else gets them: it sends TERM a third of the TTL before the end, or 5s if that
is less, and KILL at the end. If lk stands still, as by Ctrl-Z, its second process
does the same. lk does not wait for background processes that the command leaves
behind (only briefly after TERM or Ctrl-C). The command keeps its locks if a server or
database restarts within the TTL. If the engine can't be reached when the command
ends, lk tries to release for less than 2s, and says when the locks are free.

If you kill -9 lk, its second process kills the command's process group, and the locks
are free at once. On a server or a database they end with the TTL instead if a process
that the command started still runs, if --cleanup was given (lk does not run it then),
or if the second process was killed too. lk does not kill processes that left the
process group (setsid), and does not see processes elsewhere (ssh, a container): these
can outlive the locks. By LK_FENCE a resource can refuse an older holder.

The command finds in its environment:
  LK_PATH         the paths, one a line
  LK_FENCE        a number that rises with every grant
  LK_CLAIM        the claim, for lk why
  LK_SLOT         the number, from 1 to N, of one unit under -n or N: (the first
                  such path's); nothing if it takes several, which have no number
  LOCKKEEPER_URL  the engine, so that an lk within the command uses the same
A run within a run that holds its paths already goes at once.

` + exitHelp + systemNote(runtime.GOOS),
		Example: `  # nobody else has mydatabase/mytest while the tests run
  lk run mydatabase/mytest -- go test ./...

  # together with all who share it, but with nobody who wants it alone
  lk run --shared testsite -- ./read-only-test

  # at most three at a time
  lk run -n 3 router1/snmp -- snmpwalk router1

  # several at once, each in its own way, and what to do before they are released
  lk run mydatabase --with s:testsite --cleanup ./reset -- ./load-test

  # don't wait
  lk run --try deploy -- ./deploy || echo "somebody else deploys"

  # who and what for, for those who wait behind it
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
	supervise.NotifySignals(signals)
	defer signal.Stop(signals)

	p := o.plan()
	client, err := a.openForRun(ctx, p, signals)
	if client != nil {
		defer func() { client.closeBy(time.Now().Add(releaseTime)) }()
	}
	if err != nil {
		return err
	}
	hold, err := a.claimUncovered(ctx, client, p.wanted, signals)
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
