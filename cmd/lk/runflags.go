package main

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

// runOptions are the flags of lk run, and what check makes of them and of the arguments.
type runOptions struct {
	shared             bool
	limit, units       int
	with               []string
	try                bool
	wait, ttl, maxHold time.Duration
	priority           int
	steal, stealsAfter bool // stealsAfter: after stealAfter
	stealAfter         stealBound
	soft               bool
	quietPeriod        time.Duration
	onYield, onLost    supervise.Action
	cleanup            string
	label              lockkeeper.Label
	conflictCode       int

	targets []lockkeeper.Target
	command []string
}

func (o *runOptions) addFlags(cmd *cobra.Command, a *app) {
	f, bad := cmd.Flags(), &a.bad
	f.BoolVarP(&o.shared, "shared", "s", false, "lock every PATH in shared mode")
	f.VarP(number{&o.limit, bad, "-n takes a number, as in -n 3: at most so many at a time, not %q; not to wait is --try"},
		"limit", "n", "take a permit of each PATH: at most N are in use at a time, by this caller's limit")
	f.Var(number{&o.units, bad, "--units takes a number, not %q"}, "units", "with -n: the number of permits to take")
	f.StringArrayVar(&o.with, "with", nil, "also lock `SPEC` (repeatable): PATH or x:PATH exclusive, s:PATH shared, "+
		"N:PATH one permit of N, U/N:PATH U permits")
	f.BoolVar(&o.try, "try", false, "do not wait: fail at once if it is taken")
	addSpan(cmd, bad, &o.wait, "wait", 0, "wait at most D, such as 90s, 5m or 2w3d (default: without limit)")
	addSpan(cmd, bad, &o.ttl, "ttl", lockkeeper.MinTTL,
		"free the locks D after the last renewal; lk renews every third of D")
	addSpan(cmd, bad, &o.maxHold, "max-hold", time.Millisecond,
		"hold at most D, then stop the command (default: without limit)")
	f.Var(number{&o.priority, bad, "--priority takes a number, not %q"}, "priority", "higher is granted first (default 0)")
	f.BoolVar(&o.steal, "steal", false, "ask holders of lower --priority to release, and wait until they do")
	f.Var(stealSpan{&o.stealAfter, bad}, "steal-after", "as --steal, and take the locks after D, or after their TTL if "+
		"that is sooner; 0.5ttl: after half of their TTL; auto: as measured, where the engine measures it")
	f.BoolVar(&o.soft, "soft", false, "wait without blocking claims behind this one")
	addSpan(cmd, bad, &o.quietPeriod, "quiet-period", 0, "with --soft: wait until it has been free for D")
	f.Var(choice[supervise.Action]{&o.onYield, bad, "--on-yield",
		[]supervise.Action{supervise.Ignore, supervise.Terminate}}, "on-yield",
		"when somebody asks for the locks: print it, or also send TERM to the command")
	f.Var(choice[supervise.Action]{&o.onLost, bad, "--on-lost",
		[]supervise.Action{supervise.Terminate, supervise.Kill, supervise.Warn}}, "on-lost", "before the locks are lost: "+
		"send TERM, then KILL at the end; only KILL; or only warn, and let the command run on")
	f.StringVar(&o.cleanup, "cleanup", "", "run `CMD` with sh -c after the command, while lk still holds the "+
		"locks; LK_EXIT is the command's exit code. If the command succeeds, lk exits with CMD's exit code")
	f.StringVar(&o.label.As, "as", "", "name of the holder, for others (default user@host:PID)")
	f.StringVar(&o.label.Note, "note", "", "purpose, for others (default: the command's name)")
	f.StringVar(&o.label.Link, "link", "", "link, for others, such as the URL of a CI run")
	f.VarP(number{&o.conflictCode, bad, "-E takes an exit code, 0 to 255, not %q"}, "conflict-exit-code", "E",
		"exit code if the locks are not acquired")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print nothing while waiting, nor that it is taken")
}

// choice is the value of a flag that takes one of a few words.
type choice[T ~string] struct {
	to   *T
	bad  *problems
	name string
	of   []T
}

func (c choice[T]) String() string {
	if c.to == nil {
		return ""
	}
	return string(*c.to)
}

// Type names the words in the help.
func (c choice[T]) Type() string { return c.list("|") }

// Set takes one of the words.
func (c choice[T]) Set(text string) error {
	if !slices.Contains(c.of, T(text)) {
		c.bad.addf("%s takes one of %s, not %q", c.name, c.list(", "), text)
		return nil
	}
	*c.to = T(text)
	return nil
}

func (c choice[T]) list(separator string) string {
	words := make([]string, len(c.of))
	for i, word := range c.of {
		words[i] = string(word)
	}
	return strings.Join(words, separator)
}

// check reads the arguments and collects everything that is wrong with them and
// with the flags.
func (o *runOptions) check(cmd *cobra.Command, args []string, bad *problems) {
	paths := args
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		paths, o.command = args[:dash], args[dash:]
	}
	if len(paths)+len(o.with) == 0 {
		bad.addf("no PATH: name what to hold, as in: lk run mydatabase/mytest -- go test ./...")
	}
	if len(o.command) == 0 {
		bad.addf("no command after --: write it last, as in: lk run mydatabase/mytest -- go test ./...")
	}
	limited := cmd.Flags().Changed("limit")
	for _, text := range paths {
		path, err := lockkeeper.ParsePath(text)
		o.add(o.target(path, limited), err, bad)
	}
	for _, spec := range o.with {
		target, err := parseWith(spec)
		o.add(target, err, bad)
	}
	o.completeLabel()
	o.checkCombinations(cmd, bad)
	if o.conflictCode < 0 || o.conflictCode > 255 {
		bad.addf("exit code %d is out of range: 0 to 255", o.conflictCode)
	}
	// The package lockkeeper checks the rest.
	want := lockkeeper.Want{ID: 1, Targets: o.targets, Priority: o.priority, Label: o.label}
	if o.soft && !o.try {
		bad.add((&lockkeeper.Want{Wait: o.wait, Quiet: o.quietPeriod}).CheckWait())
	}
	if len(o.targets) > 0 {
		bad.add(want.Check())
	}
	session := lockkeeper.Session{ID: "lk", TTL: o.ttl}
	bad.add(session.Check(false))
}

func (o *runOptions) add(t lockkeeper.Target, err error, bad *problems) {
	if err != nil {
		bad.add(err)
		return
	}
	o.targets = append(o.targets, t)
}

// checkCombinations collects flags that exclude each other, and sets values that follow from
// others.
func (o *runOptions) checkCombinations(cmd *cobra.Command, bad *problems) {
	given := cmd.Flags().Changed
	o.stealsAfter = given("steal-after")
	o.steal = o.steal || o.stealsAfter
	exclusive := !slices.ContainsFunc(o.targets, func(t lockkeeper.Target) bool {
		return t.Mode != lockkeeper.ModeExclusive
	})
	for _, c := range []struct {
		wrong bool
		say   string
	}{
		{given("limit") && o.shared, "-n and -s exclude each other: a limit counts holders, sharing does not"},
		{given("units") && !given("limit"), "--units goes with -n: of how many are they?"},
		{o.try && given("wait"), "--try and --wait exclude each other: --try does not wait"},
		{o.try && o.steal, "--try and stealing exclude each other: --try does not wait, " +
			"and a holder that is asked to yield needs time"},
		{o.soft && o.steal, "--soft and stealing exclude each other: --soft lets others pass"},
		{o.soft && !exclusive, "--soft is for exclusive paths only, not with -s, -n, or a --with that shares or counts"},
		{given("quiet-period") && !o.soft, "--quiet-period goes with --soft: without it, nothing is waited for but the line"},
		{given("quiet-period") && o.try, "--try and --quiet-period exclude each other: --try does not wait"},
		{given("cleanup") && o.cleanup == "", "--cleanup is empty: name a command"},
	} {
		if c.wrong {
			bad.addf("%s", c.say)
		}
	}
	if o.try {
		o.wait = 0
	}
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

// completeLabel sets the parts of the label that the user did not.
func (o *runOptions) completeLabel() {
	if o.label.As == "" {
		o.label.As = thisProcess()
	}
	if o.label.Note == "" && len(o.command) > 0 { // without the arguments, which may be secret
		o.label.Note = printable(filepath.Base(o.command[0]), lockkeeper.MaxNoteBytes)
	}
}

// plan is a checked lk run.
type plan struct {
	trial  trial
	wanted *wanted
	job    job
	label  lockkeeper.Label
}

// plan returns the plan. The bound of the wait counts from now.
func (o *runOptions) plan() plan {
	began := time.Now()
	bound := o.wait
	if bound == lockkeeper.Forever {
		bound = o.ttl
	}
	w := o.wanted(began)
	w.bound = bound
	return plan{trial{began, bound, o.contest().all()}, w, o.job(), o.label}
}

// wanted says what to wait for, and how.
func (o *runOptions) wanted(began time.Time) *wanted {
	w := &wanted{
		contest:      o.contest(),
		targets:      o.targets,
		wait:         o.wait,
		began:        began,
		as:           o.label.As,
		steal:        o.steal,
		priority:     o.priority,
		conflictCode: o.conflictCode,
	}
	switch {
	case o.soft:
		w.options = append(w.options, lockkeeper.WithSoft(o.quietPeriod))
	case o.stealsAfter:
		w.options = append(w.options, o.stealAfter.request())
	case o.steal:
		w.options = append(w.options, lockkeeper.WithSteal())
	}
	if o.maxHold > 0 {
		w.options = append(w.options, lockkeeper.WithMaxHold(o.maxHold, graceOf(o.ttl)))
	}
	w.options = append(w.options, lockkeeper.WithPriority(o.priority), lockkeeper.WithAs(o.label.As),
		lockkeeper.WithNote(o.label.Note), lockkeeper.WithLink(o.label.Link))
	return w
}

// job says what to run under the locks, and how.
func (o *runOptions) job() job {
	paths := make([]string, len(o.targets))
	for i, t := range o.targets {
		paths[i] = string(t.Path)
	}
	return job{
		command: o.command,
		cleanup: o.cleanup,
		paths:   strings.Join(paths, "\n"),
		what:    o.contest().all(),
		ttl:     o.ttl,
		maxHold: o.maxHold,
		onYield: o.onYield,
		onLost:  o.onLost,
	}
}

// contest describes the wanted paths, for messages.
func (o *runOptions) contest() contest {
	var c contest
	for _, t := range o.targets {
		c.wanted = append(c.wanted, t.Path)
	}
	return c
}

// graceOf returns how long before the end of a lease its command is asked to stop.
func graceOf(ttl time.Duration) time.Duration { return min(5*time.Second, ttl/3) }
