package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/internal/supervise"
)

// execute runs the verb that the arguments name, and returns lk's exit code.
func (a *app) execute(ctx context.Context) int {
	root := a.newRoot(a.verbAlone())
	root.SetArgs(a.args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var ran *verbError
	if errors.As(err, &ran) {
		return a.exitCode(ran.err)
	}
	return a.reportBadUsage(cmd, err)
}

// newVerb makes the command of one verb.
type newVerb struct {
	group, name string
	make        func() *cobra.Command
}

// verbs lists all verbs, in the order in which help lists them.
func (a *app) verbs() []newVerb {
	return []newVerb{
		{groupHold, "run", a.newRun}, {groupHold, "grab", a.newGrab}, {groupHold, "renew", a.newRenew},
		{groupHold, "keep", a.newKeep}, {groupHold, "release", a.newRelease},
		{groupLook, "ls", a.newLs}, {groupLook, "why", a.newWhy}, {groupLook, "watch", a.newWatch},
		{groupLook, "top", a.newTop}, {groupLook, "stats", a.newStats}, {groupLook, "doctor", a.newDoctor},
		{groupLook, "bench", a.newBench},
		{groupOperate, "revoke", a.newRevoke}, {groupOperate, "freeze", a.newFreeze}, {groupOperate, "thaw", a.newThaw},
		{groupServe, "serve", a.newServe}, {groupServe, "cluster", a.newCluster}, {groupServe, "drain", a.newDrain},
		{groupServe, "token", a.newToken}, {groupServe, "ca", a.newCA}, {groupServe, "migrate", a.newMigrate},
		{groupServe, "dump", a.newDump}, {groupServe, "reset", a.newReset},
		{groupMore, "version", a.newVersion}, {groupMore, "man", a.newMan}, {groupMore, supervise.Verb, a.newGuardVerb},
	}
}

// verbAlone returns the verb that the arguments name, if it needs no other one; "" if it does, as
// help does. To make all verbs with their flags takes longer than many a verb.
func (a *app) verbAlone() string {
	if len(a.args) == 0 || a.args[0] == "man" {
		return ""
	}
	for _, v := range a.verbs() {
		if v.name == a.args[0] {
			return v.name
		}
	}
	return ""
}

// newRoot returns the command lk with that verb alone; with all verbs, topics and completions if it
// is "".
func (a *app) newRoot(alone string) *cobra.Command {
	cobra.EnableCommandSorting = false // help lists verbs in the order of use
	var showVersion bool
	root := &cobra.Command{
		Use:   "lk VERB [ARG...]",
		Short: "Run commands under locks, and see who holds what",
		Long: `lk runs commands under locks.

A lock is named by a path, such as mydatabase/mytest. It covers all paths below it: a
claim of mydatabase waits for all holders inside, in fair order.

lk needs no server. Without --engine it keeps the locks in a file of yours, which excludes
commands that you run on this machine. If /var/lib/lockkeeper-local exists, the file is
there, and excludes all users of this machine. For several machines see lk serve.`,
		Example: `  # run the tests while nobody else has the database
  lk run mydatabase/mytest -- go test ./...

  # why do I wait?
  lk why mydatabase`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: a.checkedAlone(func(cmd *cobra.Command, args []string) {
			if len(args) > 0 {
				a.bad.addf("unknown command %q%s", args[0], didYouMean(cmd, args[0]))
			}
		}),
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				_, err := fmt.Fprintln(a.stdout, versionLine())
				return err
			}
			return cmd.Help()
		},
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetUsageFunc(writeUsage)
	// With the field Version, cobra links package text/template, which makes the command a third larger
	// (make size).
	root.Flags().BoolVarP(&showVersion, "version", "v", false, "version for lk")
	root.PersistentFlags().StringVar(&a.engineFlag, "engine", "", "`URL` of the engine that keeps the locks (default $"+
		engineVariable+", else a file)")
	root.SetFlagErrorFunc(a.flagError)
	root.AddGroup(groups...)
	for _, v := range a.verbs() {
		if alone == "" || alone == v.name {
			c := v.make()
			c.GroupID = v.group
			root.AddCommand(c)
		}
	}
	root.SetHelpCommand(a.newHelp())
	if alone == "" {
		root.AddCommand(newTopics()...)
		root.InitDefaultCompletionCmd()
		a.completion(root)
	}
	root.CompletionOptions.DisableDefaultCmd = true // it has been added
	for _, c := range root.Commands() {
		if slices.Contains([]string{"version", "man", "completion", "ca", "token", "cluster", "help"}, c.Name()) {
			a.withoutEngine(c)
		}
	}
	if alone == "" {
		a.completes(root)
	}
	return root
}

// withoutEngine makes a verb that uses no engine, and its subcommands, refuse --engine
// and hide it in their help.
func (a *app) withoutEngine(c *cobra.Command) {
	c.Flags().Var(refusedEngine{&a.bad}, "engine", "")
	_ = c.Flags().MarkHidden("engine") // it fails only where there is no such flag
	for _, sub := range c.Commands() {
		a.withoutEngine(sub)
	}
}

// refusedEngine is the value of --engine for verbs that use no engine. To set it is bad usage.
type refusedEngine struct{ bad *problems }

func (refusedEngine) String() string { return "" }
func (refusedEngine) Type() string   { return "URL" }

func (n refusedEngine) Set(string) error {
	n.bad.addf("--engine: this verb uses no engine: leave it out")
	return nil
}

// verbError is an error of a verb that ran; all others are bad usage.
type verbError struct{ err error }

func (e *verbError) Error() string { return e.err.Error() }

// verb returns a cobra RunE that marks errors of work as errors of a verb that ran.
func verb(work func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := work(cmd, args); err != nil {
			return &verbError{err}
		}
		return nil
	}
}

// checked returns a cobra Args that runs a verb's check of its arguments. cobra calls it after it
// has parsed the flags, and it reports all problems at once, those of the chosen engine included.
func (a *app) checked(check func(cmd *cobra.Command, args []string)) cobra.PositionalArgs {
	return a.checkedAlone(func(cmd *cobra.Command, args []string) {
		check(cmd, args)
		a.checkEngine()
	})
}

// checkedAlone is checked for verbs that need no engine.
func (a *app) checkedAlone(check func(cmd *cobra.Command, args []string)) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		check(cmd, args)
		return a.bad.err()
	}
}

// takes returns the check of verbs that need no engine and take least to most arguments.
func (a *app) takes(least, most int) cobra.PositionalArgs {
	return a.checkedAlone(func(cmd *cobra.Command, args []string) {
		if len(args) < least || len(args) > most {
			a.bad.addf("%s: it is used as %q", plural(len(args), "argument"), cmd.UseLine())
		}
	})
}

// program returns the beginning of messages about bad usage: "lk run" for the verb run.
func program(cmd *cobra.Command) string {
	if cmd == nil {
		return "lk"
	}
	return strings.TrimSpace(cmd.CommandPath())
}
