package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
)

func (a *app) newReset() *cobra.Command {
	var sure bool
	cmd := &cobra.Command{
		Use:        "reset [URL]",
		SuggestFor: []string{"clear", "flush", "wipe", "reinit"},
		Short:      "Make servers forget all locks",
		Long: `Make Redis servers forget all locks, and start a new set of them. The servers are those of
URL, else of --engine or LOCKKEEPER_URL. It is needed when a majority of them has lost its
data at once, or when they shall belong to a set of another size. All servers must answer.

Without --yes, lk reset prints what would be lost, and changes nothing.

Stop the programs that use locks first. A program that holds a lock notices at its next
renewal that it lost it, or when its TTL ends. Until then another program can get the same
lock. Fences of the new set are higher than those of the old one, unless the clocks of the
servers were set back.`,
		Example: `  # what would be lost?
  lk reset redis://10.0.0.1,10.0.0.2,10.0.0.3

  # start a new set
  lk reset --yes redis://10.0.0.1,10.0.0.2,10.0.0.3`,
		Args: a.checked(func(_ *cobra.Command, args []string) { a.checkReset(args) }),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.reset(cmd.Context(), sure) }),
	}
	cmd.Flags().BoolVar(&sure, "yes", false, "forget all locks")
	return cmd
}

// checkReset collects the problems of the chosen engine.
func (a *app) checkReset(args []string) {
	a.takeEngine(args, "engine")
	url, named, err := a.chooseURL()
	switch {
	case err != nil: // checkEngine reports it
	case !named:
		a.bad.addf("no servers: name them, as in lk reset redis://HOST,HOST,HOST, or by --engine or %s", engineVariable)
	case schemeOf(url).Check != nil && schemeOf(url).Reset == nil:
		a.bad.addf("%s is %s: only sets of Redis servers are reset; lk revoke ends single locks", a.engineSource(),
			lockkeeper.RedactURL(url))
	}
}

func (a *app) reset(ctx context.Context, sure bool) error {
	url, _, err := a.chooseURL()
	if err != nil {
		return err
	}
	lost, err := schemeOf(url).Reset(ctx, url, sure)
	for line := range strings.Lines(lost) {
		fmt.Fprint(a.stdout, line)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", a.engineSource(), err)
	}
	if !sure {
		return &exit{code: exitUsage, say: fmt.Errorf("nothing is changed: lk reset --yes makes the servers forget this")}
	}
	fmt.Fprintf(a.stderr, "lk: all locks are forgotten, and %s is a new set\n", lockkeeper.RedactURL(url))
	return nil
}
