package main

import (
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

// runOptions are the flags of lk run, and what was read from its arguments.
type runOptions struct {
	shared             bool
	limit, units       int
	with               []string
	try                bool
	wait, ttl, maxHold time.Duration
	priority           int
	steal, takes       bool // takes: after stealAfter
	stealAfter         time.Duration
	soft               bool
	quietPeriod        time.Duration
	onYield, onLost    supervise.Action
	cleanup            string
	as, note, link     string
	conflictCode       int
	quiet              bool

	targets []lockkeeper.Target
	command []string

	around []lockkeeper.Status // holds of the runs around this one
	hinted bool                // hintSteal has printed its hint
	began  time.Time           // when lk began; the bound of the wait counts from here
}

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
	o.addFlags(cmd, &a.bad)
	return cmd
}

// requests are what is asked of the client for those of the targets that must be claimed.
func (o *runOptions) requests(targets []lockkeeper.Target) []lockkeeper.Request {
	var all []lockkeeper.Request
	for _, t := range targets {
		switch t.Mode {
		case lockkeeper.ModeShared:
			all = append(all, lockkeeper.Shared(string(t.Path)))
		case lockkeeper.ModePermits:
			all = append(all, lockkeeper.Permits(string(t.Path), t.Units, t.Limit))
		default:
			all = append(all, lockkeeper.Exclusive(string(t.Path)))
		}
	}
	switch {
	case o.soft:
		all = append(all, lockkeeper.WithSoft(o.quietPeriod))
	case o.takes:
		all = append(all, lockkeeper.WithStealAfter(o.stealAfter))
	case o.steal:
		all = append(all, lockkeeper.WithSteal())
	}
	if o.maxHold > 0 {
		all = append(all, lockkeeper.WithMaxHold(o.maxHold, o.grace()))
	}
	return append(all, lockkeeper.WithWait(o.waitLeft()), lockkeeper.WithPriority(o.priority),
		lockkeeper.WithAs(o.as), lockkeeper.WithNote(o.note), lockkeeper.WithLink(o.link))
}

func (o *runOptions) labels() lockkeeper.Label {
	return lockkeeper.Label{As: o.as, Note: o.note, Link: o.link}
}

// grace is how long before the end of the lease the child is asked to stop.
func (o *runOptions) grace() time.Duration { return min(5*time.Second, o.ttl/3) }
