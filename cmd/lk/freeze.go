package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// freezeOptions are the arguments of lk freeze and lk thaw.
type freezeOptions struct {
	path lockkeeper.Path
	all  bool // everything: path is the root
	span time.Duration
	note string
	json bool
}

func (a *app) newFreeze() *cobra.Command {
	o := &freezeOptions{}
	cmd := &cobra.Command{
		Use:   "freeze {PATH | --all} --for D",
		Short: "Stop granting locks for a while",
		Long: `Grant nothing at PATH and below it for a while. New requests wait; a request with a
shorter bound fails at once. Holders keep their locks: wait for them (lk ls PATH), or take
their locks with lk revoke.

A second freeze of a path replaces the first. lk thaw ends a freeze.

With --all, nothing is granted anywhere. No lock covers everything, since unrelated
programs would wait for each other.`,
		Example: `  # no deployments over the weekend
  lk freeze deploy --for 2d12h --note "code freeze"

  # maintenance: grant nothing, then take the locks of all holders
  lk freeze mydatabase --for 30m --note "new disks"
  lk revoke mydatabase --all --note "new disks"

  # grant nothing at all
  lk freeze --all --for 1h --note "the data centre moves"`,
		Args: a.checked(func(cmd *cobra.Command, args []string) {
			o.checkPath(a, cmd, args)
			if !cmd.Flags().Changed("for") {
				a.bad.addf("--for is missing: say for how long, as in --for 30m; lk thaw ends it earlier")
			} else if o.span == 0 && len(a.bad.list) == 0 {
				a.bad.addf("--for 0 freezes nothing: lk thaw ends a freeze")
			}
			want := lockkeeper.Want{
				ID:      1,
				Targets: []lockkeeper.Target{{Path: "x", Mode: lockkeeper.ModeExclusive}},
				Freeze:  o.span,
				Label:   o.label(),
			}
			a.bad.add(want.Check())
		}),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.freeze(cmd.Context(), o) }),
	}
	f := cmd.Flags()
	addSpan(cmd, &a.bad, &o.span, "for", 0, "for how long, such as 30m or 2d")
	f.BoolVar(&o.all, "all", false, "freeze everything, in place of PATH")
	f.StringVar(&o.note, "note", "", "`WHY`, for all waiters")
	f.BoolVar(&o.json, "json", false, "print the freeze as JSON; durations are in seconds")
	return cmd
}

func (a *app) newThaw() *cobra.Command {
	o := &freezeOptions{}
	cmd := &cobra.Command{
		Use:        "thaw {PATH | --all}",
		SuggestFor: []string{"unfreeze", "melt"},
		Short:      "End a freeze",
		Long: `End the freeze of PATH early; with --all, the freeze of everything. Freezes of other paths
stay. If PATH is not frozen, the exit code is 1.`,
		Example: `  # the maintenance is done
  lk thaw mydatabase --note "new disks are in"

  # what is frozen at all?
  lk ls | grep frozen`,
		Args: a.checked(func(cmd *cobra.Command, args []string) {
			o.checkPath(a, cmd, args)
			a.bad.add((&lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: lockkeeper.Root, Label: o.label()}).Check())
		}),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.thaw(cmd.Context(), o) }),
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "end the freeze of everything, in place of PATH")
	cmd.Flags().StringVar(&o.note, "note", "", "`WHY`, for the server's audit log")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the freeze that ended as JSON; durations are in seconds")
	return cmd
}

// checkPath parses PATH, or --all in place of it.
func (o *freezeOptions) checkPath(a *app, cmd *cobra.Command, args []string) {
	switch {
	case o.all && len(args) > 0:
		a.bad.addf("--all is everything: name no path with it")
	case o.all:
		o.path = lockkeeper.Root
	case len(args) == 1 && args[0] == string(lockkeeper.Root):
		a.bad.addf("use --all for everything, as in: %s --all", program(cmd))
	default:
		o.path = a.thePath(cmd, args)
	}
}

// frozenPath names the path of a freeze in a sentence.
func frozenPath(path lockkeeper.Path) string {
	if path == lockkeeper.Root {
		return "everything"
	}
	return string(path)
}

func (o *freezeOptions) label() lockkeeper.Label {
	return lockkeeper.Label{As: userAtHost(), Note: o.note}
}

func (a *app) freeze(ctx context.Context, o *freezeOptions) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Freeze(ctx, string(o.path), o.span, o.label()); err != nil {
		return err
	}
	all, _ := listAll(ctx, client.Client, lockkeeper.Query{}) // only for the text: it is frozen in any case
	text := fmt.Sprintf("%s is frozen for %s", frozenPath(o.path), duration.Text(o.span))
	if n := len(slices.DeleteFunc(slices.Clone(all), func(s lockkeeper.Status) bool {
		return s.State != lockkeeper.Held || !inside(o.path, s)
	})); n > 0 {
		see := "lk ls"
		if !o.all {
			see += " " + string(o.path)
		}
		text += fmt.Sprintf("; holders there keep their locks (%d, see %s)", n, see)
	}
	if o.json {
		return writeEvent(a.stdout, time.Now(), "frozen", text, o.freezeIn(all))
	}
	fmt.Fprintln(a.stdout, text)
	if o.note == "" {
		fmt.Fprintln(a.stderr, "lk: waiters see no reason: freeze again with --note to add one")
	}
	return nil
}

// thaw ends the freeze without a list before: an identity that may freeze need not be allowed to look.
func (a *app) thaw(ctx context.Context, o *freezeOptions) error {
	client, err := a.operator(ctx, lockkeeper.FeatureFreeze)
	if err != nil {
		return err
	}
	defer client.Close()
	frozen := o.freezeIn(nil)
	if o.json {
		all, _ := listAll(ctx, client.Client, lockkeeper.Query{})
		frozen = o.freezeIn(all)
	}
	err = client.Thaw(ctx, string(o.path), o.label())
	if errors.Is(err, lockkeeper.ErrNotHeld) {
		defer a.hidden(client)
		all, failed := listAll(ctx, client.Client, lockkeeper.Query{})
		return notFrozen(o.path, all, failed == nil && !client.Guarantees().Partial)
	}
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s is not frozen any more", frozenPath(o.path))
	if o.json {
		frozen.State = lockkeeper.Ended
		return writeEvent(a.stdout, time.Now(), "thawed", text, frozen)
	}
	_, err = fmt.Fprintln(a.stdout, text)
	return err
}

// freezeIn returns the freeze of exactly that path; as far as o says what it is if it is not among all.
func (o *freezeOptions) freezeIn(all []lockkeeper.Status) lockkeeper.Status {
	for _, s := range all {
		if s.State == lockkeeper.Freezing && slices.ContainsFunc(s.Grants, func(g lockkeeper.Grant) bool {
			return g.Path == o.path
		}) {
			return s
		}
	}
	target := lockkeeper.Target{Path: o.path, Mode: lockkeeper.ModeExclusive}
	return lockkeeper.Status{State: lockkeeper.Freezing, Grants: []lockkeeper.Grant{{Target: target}}, Label: o.label(),
		Left: o.span}
}

// notFrozen says what is frozen instead. complete: all has every freeze.
func notFrozen(path lockkeeper.Path, all []lockkeeper.Status, complete bool) error {
	var others []string
	for _, s := range all {
		if s.State == lockkeeper.Freezing {
			others = append(others, frozenPath(s.Grants[0].Path))
		}
	}
	what := strconv.Quote(string(path)) + " is not frozen"
	if path == lockkeeper.Root {
		what = "not everything is frozen"
	}
	text := what
	switch {
	case len(others) > 0:
		text += "; frozen: " + strings.Join(others, ", ")
	case complete:
		text += ", and no other path is"
	}
	return &exit{code: exitFailure, say: errors.New(text)}
}
