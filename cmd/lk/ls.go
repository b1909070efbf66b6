package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
)

func (a *app) newLs() *cobra.Command {
	var path lockkeeper.Path
	var asJSON, long bool
	cmd := &cobra.Command{
		Use:        "ls [PATH]",
		SuggestFor: []string{"ps", "status"},
		Short:      "List who holds and who waits",
		Long: `List who holds, who waits and what is frozen: everything, or what meets PATH,
at it, above it or below it. Holders come first, then the waiters in line. While the
disk of a server is full, lk prints the last safe state and its age.

With --json, each claim or freeze is an object on a line of its own. All durations
are in seconds; what is not so, or has no end, is left out.
  claim     names it, for lk revoke --claim
  inside    the claim in whose hold it was made
  state     held, waiting or frozen; converting: held shared, and waits to be alone
  targets   path and mode of each, and for permits units, limit, in_use, slot
  as, note, link   what it says of itself
  fence     rises with every grant
  age       since it was granted, or since it began to wait
  left      until its announced end, or until it gives up waiting. Not its TTL
  asked     it is asked to yield: by whom, the reason, and left until it is taken
  place     in line, from 1; ticket orders those of one priority
  eta       about how long it will wait from now on
  waits     every reason why it waits; blockers: who is in the way, 8 at most
  change    rises with every change of the claim: of two, the higher is the newer
  revision  how often its holder has altered what it wants`,
		Example: `  # everything
  lk ls

  # is anybody in my database, above it or below it?
  lk ls mydatabase

  # with what lk revoke --claim needs
  lk ls --long

  # who holds something, for a script
  lk ls --json | jq -r 'select(.state == "held").as'`,
		Args: a.checked(func(_ *cobra.Command, args []string) { path = a.onePath(args) }),
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			client, err := a.look(cmd.Context())
			if err != nil || client == nil {
				return err
			}
			defer client.Close()
			return a.list(cmd, client.Client, path, asJSON, long)
		}),
	}
	cmd.Flags().BoolVarP(&long, "long", "l", false, "also list what names each claim, for lk revoke --claim")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line; durations are in seconds")
	return cmd
}

func (a *app) list(cmd *cobra.Command, client *lockkeeper.Client, path lockkeeper.Path, asJSON, long bool) error {
	rows, empty := newTable(a.stdout, long), true
	for status, err := range client.List(cmd.Context(), lockkeeper.Query{Meets: path, Stale: true}) {
		if err != nil {
			if err = a.asOf(err); err != nil {
				return err
			}
			break
		}
		if asJSON {
			if err := writeJSON(a.stdout, status); err != nil {
				return err
			}
			continue
		}
		if empty {
			rows.header()
			empty = false
		}
		rows.rows(status)
	}
	if empty && !asJSON {
		where := ""
		if path != "" {
			where = ", at " + string(path) + ", above it or below it"
		}
		fmt.Fprintf(a.stderr, "lk: nothing is held, and nobody waits%s\n", where)
	}
	return rows.flush()
}
