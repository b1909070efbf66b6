package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/listing"
)

func (a *app) newStats() *cobra.Command {
	var path lockkeeper.Path
	var asJSON bool
	cmd := &cobra.Command{
		Use:        "stats [PATH]",
		SuggestFor: []string{"count", "metrics"},
		Short:      "Count holds and waits, by path and by owner",
		Long: `Count holds, waiting claims and sessions, by path and by owner, with the longest queue, the
longest hold and the longest wait: of everything, or at PATH, above it and below it.

In the bars, # is a hold and . is a waiting claim.`,
		Example: `  # where are the queues?
  lk stats

  # one part of the tree
  lk stats mydatabase

  # one number, for a dashboard
  lk stats --json | jq .waiting`,
		Args: a.checked(func(_ *cobra.Command, args []string) { path = a.onePath(args) }),
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			var all []lockkeeper.Status
			client, err := a.connectReadOnly(cmd.Context())
			if err == nil && client != nil {
				defer client.Close()
				all, err = a.lookAtAll(cmd.Context(), client.Client, path)
			}
			if err != nil {
				return err
			}
			s := listing.StatsOf(listing.Overlapping(path, all))
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(s)
			}
			defer a.hidden(client)
			return writeStats(a.stdout, s)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object; durations are in seconds")
	return cmd
}

// writeStats prints counts for people.
func writeStats(to io.Writer, s *listing.Stats) error {
	fmt.Fprintf(to, "%d held and %d waiting, of %s", s.Held, s.Waiting, plural(s.Sessions, "session"))
	if s.Frozen > 0 {
		fmt.Fprintf(to, "; %s frozen", plural(s.Frozen, "path"))
	}
	fmt.Fprintln(to)
	if l := s.LongestQueue; l != nil {
		fmt.Fprintf(to, "longest queue: %s, %d waiting; first is %s for %s\n", l.Path, l.Waiting,
			who(l.First.Label, l.First.Ref), duration.Elapsed(l.First.Age))
	}
	if e := s.LongestHold; e != nil {
		fmt.Fprintf(to, "longest hold: %s\n", holdText(*e))
	}
	if e := s.LongestWait; e != nil {
		fmt.Fprintf(to, "longest wait: %s\n", waitText(*e))
	}
	most := 0
	for _, c := range slices.Concat(s.Paths, s.Owners) {
		most = max(most, c.Held+c.Waiting)
	}
	if per := perMark(most); per > 1 {
		fmt.Fprintf(to, "in the bars, each mark stands for up to %d\n", per)
	}
	columns := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	for _, list := range []struct {
		title  string
		counts []listing.Count
	}{{"PATH", s.Paths}, {"WHO", s.Owners}} {
		if len(list.counts) == 0 {
			continue
		}
		fmt.Fprintf(columns, "\n%s\tHELD\tWAITING\n", list.title)
		for _, c := range list.counts {
			fmt.Fprintf(columns, "%s\t%d\t%d\t%s\n", string(c.Path)+c.As, c.Held, c.Waiting, bar(c, most))
		}
	}
	return columns.Flush()
}

// barWidth is the length of the longest bar, unless each mark can stand for one claim.
const barWidth = 40

// perMark returns how many claims a mark stands for; most is the largest count.
func perMark(most int) int { return max(1, (most+barWidth-1)/barWidth) }

// bar draws a count: # for a hold, . for a waiter. If the largest count exceeds the width, each
// mark stands for several claims.
func bar(c listing.Count, most int) string {
	per := perMark(most)
	return strings.Repeat("#", (c.Held+per-1)/per) + strings.Repeat(".", (c.Waiting+per-1)/per)
}
