package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
)

// runOptions are the flags of lk run, and what was read from its arguments.
type runOptions struct {
	shared       bool
	limit, units int
	try          bool
	wait, ttl    time.Duration
	as           string
	note, link   string
	priority     int
	conflictCode int
	quiet        bool

	targets []lockkeeper.Target
	command []string
}

func (a *app) newRun() *cobra.Command {
	o := &runOptions{
		units: 1, wait: lockkeeper.Forever, ttl: lockkeeper.DefaultTTL, conflictCode: exitNotAcquired,
	}
	cmd := &cobra.Command{
		Use:   "run PATH... -- COMMAND [ARG...]",
		Short: "Run a command while holding locks",
		Long: `Run a command while holding locks: PATH and all that is below it, for this
command alone, or shared with others (-s), or for a limited number of them (-n).
Several paths are taken together or not at all.

It waits in line until they are free. The command gets the signals that lk gets,
and LK_PATH, LK_FENCE, LK_CLAIM, LK_SLOT and LOCKKEEPER_URL in its environment.
Should the lock be lost, the command and all that it started in its process group
are stopped before anyone else can get it. What a command leaves in the background
when it ends is not waited for. If lk itself is killed (kill -9), all that is ended
at once, and then the lock goes on. If lk stands still, as by Ctrl-Z, the command is
asked to stop before the lock ends, and ended with it.

LK_PATH has the paths, one a line; LK_FENCE a number that rises with every grant;
LK_CLAIM the claim, for lk why; LK_SLOT the slot of one unit under -n, else nothing.

` + exitHelp + systemNote(runtime.GOOS),
		Example: `  # nobody else has mydatabase/mytest while the tests run
  lk run mydatabase/mytest -- go test ./...

  # together with all who share it, but with nobody who wants it alone
  lk run --shared testsite -- ./read-only-test

  # at most three at a time
  lk run -n 3 router1/snmp -- snmpwalk router1

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

func (o *runOptions) addFlags(cmd *cobra.Command, bad *problems) {
	f := cmd.Flags()
	f.BoolVarP(&o.shared, "shared", "s", false, "share the paths with others who share them")
	f.VarP(number{&o.limit, bad, "-n takes a number, as in -n 3: at most so many at a time, not %q; not to wait is --try"},
		"limit", "n", "hold permits: at most N units in use at a time, as this caller sees it")
	f.Var(number{&o.units, bad, "--units takes a number, not %q"}, "units", "with -n: how many units to take")
	f.BoolVar(&o.try, "try", false, "do not wait: give up at once if it is taken")
	f.Var(span{&o.wait, bad, "--wait"}, "wait", "wait for at most D, such as 90s, 5m or 2w3d (default: for ever)")
	f.Var(span{&o.ttl, bad, "--ttl"}, "ttl", "free the locks D after lk was last heard of")
	f.StringVar(&o.as, "as", "", "who holds it, for others to read (default user@host)")
	f.StringVar(&o.note, "note", "", "what for (default: the command's name)")
	f.StringVar(&o.link, "link", "", "where to look, such as the URL of a CI run")
	f.Var(number{&o.priority, bad, "--priority takes a number, not %q"}, "priority", "higher goes first (default 0)")
	f.VarP(number{&o.conflictCode, bad, "-E takes an exit code, 0 to 255, not %q"}, "conflict-exit-code", "E", "exit code when it is not acquired")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "say nothing while waiting, nor that it is taken")
}

// check reads the arguments and collects everything that is wrong with them and
// with the flags.
func (o *runOptions) check(cmd *cobra.Command, args []string, bad *problems) {
	paths := args
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		paths, o.command = args[:dash], args[dash:]
	}
	if len(paths) == 0 {
		bad.addf("no PATH: name what to hold, as in: lk run mydatabase/mytest -- go test ./...")
	}
	if len(o.command) == 0 {
		bad.addf("no command after --: write it last, as in: lk run mydatabase/mytest -- go test ./...")
	}
	limited := cmd.Flags().Changed("limit")
	if limited && o.shared {
		bad.addf("-n and -s exclude each other: a limit counts holders, sharing does not")
	}
	if !limited && cmd.Flags().Changed("units") {
		bad.addf("--units goes with -n: of how many are they?")
	}
	if o.try && cmd.Flags().Changed("wait") {
		bad.addf("--try and --wait exclude each other: --try does not wait")
	}
	if o.try {
		o.wait = 0
	}
	if o.conflictCode < 0 || o.conflictCode > 255 {
		bad.addf("exit code %d is out of range: 0 to 255", o.conflictCode)
	}
	for _, text := range paths {
		if path, err := lockkeeper.ParsePath(text); err != nil {
			bad.add(err)
		} else {
			o.targets = append(o.targets, o.target(path, limited))
		}
	}
	o.label()
	o.checkRanges(bad)
}

func (o *runOptions) target(path lockkeeper.Path, limited bool) lockkeeper.Target {
	switch {
	case o.shared:
		return lockkeeper.Target{Path: path, Mode: lockkeeper.ModeShared}
	case limited:
		return lockkeeper.Target{Path: path, Mode: lockkeeper.ModePermits, Units: o.units, Limit: o.limit}
	}
	return lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive}
}

// checkRanges lets the package lockkeeper say which values are out of range.
func (o *runOptions) checkRanges(bad *problems) {
	want := lockkeeper.Want{ID: 1, Targets: o.targets, Priority: o.priority, Wait: o.wait, Label: o.labels()}
	if len(o.targets) > 0 {
		bad.add(want.Check())
	}
	session := lockkeeper.Session{ID: "lk", TTL: o.ttl}
	bad.add(session.Check(false))
}

// requests are what is asked of the client.
func (o *runOptions) requests() []lockkeeper.Request {
	var all []lockkeeper.Request
	for _, t := range o.targets {
		switch t.Mode {
		case lockkeeper.ModeShared:
			all = append(all, lockkeeper.Shared(string(t.Path)))
		case lockkeeper.ModePermits:
			all = append(all, lockkeeper.Permits(string(t.Path), t.Units, t.Limit))
		default:
			all = append(all, lockkeeper.Exclusive(string(t.Path)))
		}
	}
	return append(all, lockkeeper.WithWait(o.wait), lockkeeper.WithPriority(o.priority),
		lockkeeper.WithAs(o.as), lockkeeper.WithNote(o.note), lockkeeper.WithLink(o.link))
}

func (o *runOptions) labels() lockkeeper.Label {
	return lockkeeper.Label{As: o.as, Note: o.note, Link: o.link}
}

// grace is how long before the end of the lease the child is asked to stop.
func (o *runOptions) grace() time.Duration { return min(5*time.Second, o.ttl/3) }

// what names the targets in messages: the first path, and how many more.
func (o *runOptions) what() string {
	if n := len(o.targets) - 1; n > 0 {
		return fmt.Sprintf("%s and %d more", o.targets[0].Path, n)
	}
	return string(o.targets[0].Path)
}
