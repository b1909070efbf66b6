package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
)

func (a *app) newDump() *cobra.Command {
	return &cobra.Command{
		Use:        "dump [URL]",
		SuggestFor: []string{"journal", "export", "log", "history"},
		Short:      "Print a journal as text",
		Long: `Print the journal of a directory as text: the newest snapshot, and every command since
then. The directory is that of URL, else of --engine or LOCKKEEPER_URL.

lk dump changes nothing: it copies the journal to a temporary directory and reads the
copy. While a process has the directory open, lk dump refuses and names that process;
lk ls shows what a server has. If the journal is damaged, lk dump prints all that is
before the damage, says where the damage is, and fails.

A row is a batch of commands that one sync made safe. After its number stand the
counters of the table: the time of the engine (now), and the latest fence, ticket,
epoch and change. A command begins with its time. Then stand what it does, the session,
the number of the claim, and what the claim wants. Fields that are zero are left out.`,
		Example: `  # what a server did before it was killed
  lk dump disk:/var/lib/lockkeeper | less

  # everything about one path
  lk dump disk:/var/lib/lockkeeper | grep mydatabase/mytest`,
		Args: a.checked(func(_ *cobra.Command, args []string) { a.checkDump(args) }),
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			url, _, err := a.chooseURL()
			if err == nil {
				err = schemeOf(url).Dump(cmd.Context(), url, a.stdout)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", a.engineSource(), err)
			}
			return nil
		}),
	}
}

// checkDump collects the problems of the chosen engine.
func (a *app) checkDump(args []string) {
	a.within = true // lk dump reads the journal, and opens no engine
	a.takeEngine(args, "engine")
	url, named, err := a.chooseURL()
	switch {
	case err != nil: // checkEngine reports it
	case !named:
		a.bad.addf("no engine: name one, as in lk dump disk:DIR, or by --engine or %s", engineVariable)
	case schemeOf(url) != nil && schemeOf(url).Dump == nil:
		a.bad.addf("%s is %s, which has no journal: lk ls lists its locks; lk dump is for disk:DIR", a.engineSource(),
			lockkeeper.RedactURL(url))
	}
}

// takeEngine takes the engine from the arguments of a verb, which are one at most.
func (a *app) takeEngine(args []string, what string) {
	switch {
	case len(args) > 1:
		a.bad.addf("%d %ss: name one", len(args), what)
	case len(args) == 1 && a.engineFlag != "":
		a.bad.addf("two %ss, %s and --engine %s: name one", what, lockkeeper.RedactURL(args[0]),
			lockkeeper.RedactURL(a.engineFlag))
	case len(args) == 1:
		a.engineArg = args[0]
	}
}
