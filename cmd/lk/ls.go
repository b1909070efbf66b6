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
		Short:      "List holders, waiters and freezes",
		Long: `List holders, waiters and freezes: all, or those at PATH, above it and below it. Holders
come first, then waiters in the order of their line. While the disk of a server is full,
lk prints the last safe state and its age.

With --json, each claim or freeze is one object on a line. Durations are in seconds.
Members without a value are left out.
  claim     names the claim, for lk revoke --claim
  inside    the claim in whose hold it was made
  state     held, waiting or frozen; converting: held shared, and waits for exclusive
  targets   path and mode of each; for permits units, limit, in_use, slot
  as, note, link   its label
  fence     rises with every grant
  age       time since the grant, or since it began to wait
  left      time until its announced end, or until it gives up. Not its TTL
  asked     it is asked to yield: by whom, why, and the time left
  position  in line, from 1; ticket orders claims of one priority
  eta       estimated rest of the wait
  waits     every reason why it waits; blockers: at most 8 of them
  change    rises with every change of the claim
  revision  how often its owner changed the request`,
		Example: `  # everything
  lk ls

  # is anybody in my database, above it or below it?
  lk ls mydatabase

  # with the claims, for lk revoke --claim
  lk ls --long

  # all holders, for a script
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
	cmd.Flags().BoolVarP(&long, "long", "l", false, "also list the names of claims, for lk revoke --claim")
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
