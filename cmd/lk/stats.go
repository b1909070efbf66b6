package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
)

func (a *app) newStats() *cobra.Command {
	var path lockkeeper.Path
	var asJSON bool
	cmd := &cobra.Command{
		Use:        "stats [PATH]",
		SuggestFor: []string{"count", "top", "metrics"},
		Short:      "Count who holds and who waits, by path and by owner",
		Long: `Count holds, waiting claims and the sessions that have them: by path and by
owner, with the longest line, the longest hold and the longest wait. Of
everything, or of what meets PATH, at it, above it or below it.

In the bars each # is a hold and each . is one that waits.`,
		Example: `  # where are the lines?
  lk stats

  # one part of the tree
  lk stats mydatabase

  # one number, for a dashboard
  lk stats --json | jq .waiting`,
		Args: a.checked(func(_ *cobra.Command, args []string) { path = a.onePath(args) }),
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			var all []lockkeeper.Status
			client, err := a.look(cmd.Context())
			if err == nil && client != nil {
				defer client.Close()
				all, err = listAll(cmd.Context(), client.Client)
			}
			if err != nil {
				return err
			}
			if path != "" {
				all = meeting(path, all)
			}
			s := statsOf(all)
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(s)
			}
			return s.write(a.stdout)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object; durations are in seconds")
	return cmd
}

// stats are counts of claims at one moment.
type stats struct {
	Held        int                `json:"held"`
	Waiting     int                `json:"waiting"`
	Frozen      int                `json:"frozen"`   // paths
	Sessions    int                `json:"sessions"` // those with claims
	LongestLine *line              `json:"longest_line,omitempty"`
	LongestHold *lockkeeper.Status `json:"longest_hold,omitempty"`
	LongestWait *lockkeeper.Status `json:"longest_wait,omitempty"`
	Paths       []count            `json:"paths"`  // the longest line first
	Owners      []count            `json:"owners"` // who has most first
}

// line is the line of those who wait at one path.
type line struct {
	Path    lockkeeper.Path   `json:"path"`
	Waiting int               `json:"waiting"`
	First   lockkeeper.Status `json:"first"`
}

// count is how many hold and wait at one path, or for one owner.
type count struct {
	Path    lockkeeper.Path `json:"path,omitempty"`
	As      string          `json:"as,omitempty"`
	Held    int             `json:"held"`
	Waiting int             `json:"waiting"`
}

// statsOf counts claims, which come in the order of List.
func statsOf(all []lockkeeper.Status) *stats {
	s := &stats{Paths: []count{}, Owners: []count{}}
	paths, owners, sessions := map[lockkeeper.Path]*count{}, map[string]*count{}, map[string]bool{}
	first := map[lockkeeper.Path]lockkeeper.Status{}
	for _, st := range all {
		if st.State == lockkeeper.Freezing {
			s.Frozen++
			continue
		}
		sessions[st.Ref.Session] = true
		name := who(st.Label, st.Ref)
		if owners[name] == nil {
			owners[name] = &count{As: name}
		}
		s.add(st, owners[name])
		for _, g := range st.Grants {
			c := paths[g.Path]
			if c == nil {
				c = &count{Path: g.Path}
				paths[g.Path] = c
			}
			c.add(st)
			if _, known := first[g.Path]; !known && waits(st) {
				first[g.Path] = st
			}
		}
	}
	s.Sessions = len(sessions)
	for _, c := range paths {
		s.Paths = append(s.Paths, *c)
	}
	for _, c := range owners {
		s.Owners = append(s.Owners, *c)
	}
	slices.SortFunc(s.Paths, func(a, b count) int {
		return cmp.Or(b.Waiting-a.Waiting, b.Held-a.Held, cmp.Compare(a.Path, b.Path))
	})
	slices.SortFunc(s.Owners, func(a, b count) int {
		return cmp.Or(b.Held-a.Held, b.Waiting-a.Waiting, cmp.Compare(a.As, b.As))
	})
	if len(s.Paths) > 0 && s.Paths[0].Waiting > 0 {
		top := s.Paths[0]
		s.LongestLine = &line{top.Path, top.Waiting, first[top.Path]}
	}
	return s
}

// add counts a claim and notes whether it is the oldest so far.
func (s *stats) add(st lockkeeper.Status, owner *count) {
	owner.add(st)
	if st.State == lockkeeper.Held {
		s.Held++
		if s.LongestHold == nil || st.Age > s.LongestHold.Age {
			s.LongestHold = &st
		}
	}
	if waits(st) {
		s.Waiting++
	}
	if st.State == lockkeeper.Waiting && (s.LongestWait == nil || st.Age > s.LongestWait.Age) {
		s.LongestWait = &st
	}
}

func (c *count) add(st lockkeeper.Status) {
	if st.State == lockkeeper.Held {
		c.Held++
	}
	if waits(st) {
		c.Waiting++
	}
}

func (s *stats) write(to io.Writer) error {
	fmt.Fprintf(to, "%d held and %d waiting, of %s", s.Held, s.Waiting, plural(s.Sessions, "session"))
	if s.Frozen > 0 {
		fmt.Fprintf(to, "; %s frozen", plural(s.Frozen, "path"))
	}
	fmt.Fprintln(to)
	if l := s.LongestLine; l != nil {
		fmt.Fprintf(to, "longest line: %s, %d waiting; first is %s for %s\n", l.Path, l.Waiting, who(l.First.Label, l.First.Ref), passed(l.First.Age))
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
		counts []count
	}{{"PATH", s.Paths}, {"WHO", s.Owners}} {
		if len(list.counts) == 0 {
			continue
		}
		fmt.Fprintf(columns, "\n%s\tHELD\tWAITING\n", list.title)
		for _, c := range list.counts {
			fmt.Fprintf(columns, "%s\t%d\t%d\t%s\n", string(c.Path)+c.As, c.Held, c.Waiting, c.bar(most))
		}
	}
	return columns.Flush()
}

// barWidth is the length of the longest bar, unless each mark can stand for one claim.
const barWidth = 40

// perMark is how many claims a mark stands for, where most is the largest count.
func perMark(most int) int { return max(1, (most+barWidth-1)/barWidth) }

// bar draws a count: # for a hold, . for one that waits; where the largest count
// is more than the width, each mark stands for several.
func (c count) bar(most int) string {
	per := perMark(most)
	return strings.Repeat("#", (c.Held+per-1)/per) + strings.Repeat(".", (c.Waiting+per-1)/per)
}
