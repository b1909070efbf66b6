package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
)

// lsOptions are the arguments of lk ls.
type lsOptions struct {
	path  lockkeeper.Path
	json  bool
	long  bool
	watch bool
}

func (a *app) newLs() *cobra.Command {
	o := &lsOptions{}
	cmd := &cobra.Command{
		Use:        "ls [PATH]",
		SuggestFor: []string{"ps", "status"},
		Short:      "List holders, waiters and freezes",
		Long: `List holders, waiters and freezes: all, or those at PATH, above it and below it. Holders
come first, then waiters in the order of their line. While the disk of a server is full,
lk prints the last safe state and its age. On a terminal, long texts are shortened to its width,
and a "~" marks what is left out: lk ls | cat has them whole.

With --watch, lk prints the list again after every change, until Ctrl-C ends it: in place on
a terminal, else in blocks that begin with the time. With --json each list is one object on
a line: time, claims, and error while the list is old because the engine can't be reached.
Rapid changes may be merged. See lk watch for the changes themselves.

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

  # stay, and show every change
  lk ls --watch mydatabase

  # all holders, for a script
  lk ls --json | jq -r 'select(.state == "held").as'`,
		Args: a.checked(func(_ *cobra.Command, args []string) { o.path = a.onePath(args) }),
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			if o.watch {
				return a.watchList(cmd.Context(), o)
			}
			client, err := a.connectReadOnly(cmd.Context())
			if err != nil || client == nil {
				return err
			}
			defer client.Close()
			return a.list(cmd, client, o)
		}),
	}
	cmd.Flags().BoolVarP(&o.long, "long", "l", false, "also list the names of claims, for lk revoke --claim")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "print the list again after every change, until Ctrl-C")
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object a line; durations are in seconds")
	return cmd
}

func (a *app) list(cmd *cobra.Command, client *connection, o *lsOptions) error {
	rows, empty := newTable(a.stdout, a.width(), o.long), true
	for status, err := range client.List(cmd.Context(), lockkeeper.Query{Meets: o.path, Stale: true}) {
		if err != nil {
			if err = a.asOf(err); err != nil {
				return err
			}
			break
		}
		if o.json {
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
	if empty && !o.json {
		fmt.Fprintf(a.stderr, "lk: %s\n", nothingListed(o.path))
	}
	if (empty || o.path == "") && !o.json {
		defer a.hidden(client)
	}
	return rows.flush()
}

// nothingListed says that a list is empty.
func nothingListed(path lockkeeper.Path) string {
	if path == "" {
		return "nothing is held, and nobody waits"
	}
	return "nothing is held, and nobody waits, at " + string(path) + ", above it or below it"
}
