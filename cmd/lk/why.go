package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/report"
)

func (a *app) newWhy() *cobra.Command {
	var path lockkeeper.Path
	var asJSON bool
	cmd := &cobra.Command{
		Use:        "why [PATH]",
		SuggestFor: []string{"explain", "blocked", "who"},
		Short:      "Say why a path is not free, or why anybody waits",
		Long: `Say for everyone who waits for PATH, or for something above or below it, why
they wait: who is in the way, who is in the way of that one, and so on to the
claim in the end. If nobody waits, say who holds it; if it is free, say so.
Without PATH, say it for everyone who waits.`,
		Example: `  # why does my test not start?
  lk why mydatabase/mytest

  # who waits for what, everywhere
  lk why

  # who is to be asked? The holders that somebody waits for
  lk why --json mydatabase | jq -r 'select(.state == "held").as'`,
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
			if asJSON {
				for _, s := range report.Concerned(path, all) {
					if err := writeJSON(a.stdout, s); err != nil {
						return err
					}
				}
				return nil
			}
			return writeWhy(a.stdout, path, all)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the claims concerned, one JSON object a line; durations are in seconds")
	return cmd
}

// listAll lists all claims at once, so that the chain from a waiter to the
// root is of one moment.
func listAll(ctx context.Context, client *lockkeeper.Client) ([]lockkeeper.Status, error) {
	var all []lockkeeper.Status
	for status, err := range client.List(ctx, lockkeeper.Query{}) {
		if err != nil {
			return nil, err
		}
		all = append(all, status)
	}
	return all, nil
}

// writeWhy explains why path is not free; without a path, why anybody waits.
func writeWhy(to io.Writer, path lockkeeper.Path, all []lockkeeper.Status) error {
	concerned := report.Meeting(path, all)
	waiters := report.Waiters(concerned)
	e := explainer{to: to, all: all}
	switch {
	case path == "" && len(waiters) == 0:
		e.linef(0, "nobody waits")
	case len(concerned) == 0:
		e.linef(0, "%s is free", path)
	case len(waiters) == 0:
		for _, s := range concerned {
			e.linef(0, "%s", holdText(s))
		}
	default:
		for _, s := range waiters {
			e.linef(0, "%s", waitText(s))
			e.blockers(1, s, []lockkeeper.Ref{s.Ref})
		}
	}
	if slices.ContainsFunc(waiters, func(s lockkeeper.Status) bool { return s.ETA > 0 }) {
		e.linef(0, "(The time to go is an estimate: by what holders have announced, else by how long recent holds of the path took.)")
	}
	return e.err
}

// explainer writes chains of claims, each a level deeper than the one that it blocks.
type explainer struct {
	to  io.Writer
	all []lockkeeper.Status
	err error
}

func (e *explainer) linef(depth int, format string, args ...any) {
	if e.err == nil {
		_, e.err = fmt.Fprintf(e.to, strings.Repeat("  ", depth)+format+"\n", args...)
	}
}

// blockers writes who is in the way of s, and of those who wait themselves, who
// is in theirs. seen are the claims above in the chain.
func (e *explainer) blockers(depth int, s lockkeeper.Status, seen []lockkeeper.Ref) {
	full := e.fullPermits(s)
	for _, text := range ownReasons(s) {
		if full == "" || text != limitText(s) {
			e.linef(depth, "%s", text)
		}
	}
	if full != "" {
		e.linef(depth, "%s", full)
	}
	for _, b := range s.Blockers {
		more := slices.DeleteFunc(e.waitsOf(b), func(next lockkeeper.Status) bool { return slices.Contains(seen, next.Ref) })
		if depth > 1 && len(more) == 0 {
			e.linef(depth, "%s", atRoot(b))
		} else {
			e.linef(depth, "%s", onPath(b))
		}
		for _, next := range more {
			if next.Ref != b.Ref {
				e.linef(depth+1, "who %s", strings.TrimPrefix(waitText(next), who(next.Label, next.Ref)+" "))
				e.blockers(depth+2, next, append(slices.Clone(seen), next.Ref))
			} else {
				e.blockers(depth+1, next, append(slices.Clone(seen), next.Ref))
			}
		}
	}
}

// fullPermits says that all permits which s wants of a path are in use, if they
// are: its holders follow.
func (e *explainer) fullPermits(s lockkeeper.Status) string {
	if len(s.Blockers) == 0 {
		return ""
	}
	for _, g := range s.Grants {
		used := 0
		for _, held := range e.all {
			for _, h := range held.Grants {
				if held.State == lockkeeper.Held && h.Mode == lockkeeper.ModePermits && h.Path == g.Path {
					used += h.Units
				}
			}
		}
		if g.Mode == lockkeeper.ModePermits && used == g.Limit {
			return fmt.Sprintf("all %s of %s are in use:", plural(g.Limit, "permit"), g.Path)
		}
	}
	return ""
}

// waitsOf are the waiting claims that keep a blocker from going on: itself, and
// those that were made inside it.
func (e *explainer) waitsOf(b lockkeeper.Blocker) []lockkeeper.Status {
	if b.Ref == (lockkeeper.Ref{}) {
		return nil
	}
	var next []lockkeeper.Status
	for _, s := range e.all {
		if report.Waits(s) && (s.Ref == b.Ref || e.inside(s, b.Ref)) {
			next = append(next, s)
		}
	}
	return next
}

// inside reports whether s was made in the hold ref, or in one that was made in it.
func (e *explainer) inside(s lockkeeper.Status, ref lockkeeper.Ref) bool {
	for range e.all { // as many as there are, should the names lead round in a circle
		i := slices.IndexFunc(e.all, func(up lockkeeper.Status) bool { return up.Ref == s.Inside })
		if s.Inside == (lockkeeper.Ref{}) || i < 0 {
			return false
		}
		if s.Inside == ref {
			return true
		}
		s = e.all[i]
	}
	return false
}

// waitText: "ci-18 waits for exclusive db for 12s, 2nd in line (deploy)".
func waitText(s lockkeeper.Status) string {
	place := ""
	if s.Place > 0 {
		place = ", " + ordinal(s.Place) + " in line"
	}
	if s.ETA > 0 {
		place += ", about " + left(s.ETA) + " to go"
	}
	if s.Converting {
		return fmt.Sprintf("%s holds %s for %s and waits to have it alone%s%s", who(s.Label, s.Ref), targetsText(s), passed(s.Age), place, about(s.Label))
	}
	return fmt.Sprintf("%s waits for %s for %s%s%s", who(s.Label, s.Ref), targetsText(s), passed(s.Age), place, about(s.Label))
}

// holdText: "ci-17 holds exclusive db/a for 2m, fence 41 (nightly)".
func holdText(s lockkeeper.Status) string {
	if s.State == lockkeeper.Freezing {
		return fmt.Sprintf("%s is frozen by %s for %s more%s", s.Grants[0].Path, who(s.Label, s.Ref), left(s.Left), about(s.Label))
	}
	text := fmt.Sprintf("%s holds %s for %s, fence %d%s", who(s.Label, s.Ref), targetsText(s), passed(s.Age), s.Fence, about(s.Label))
	if s.Asked != nil {
		text += "; it is asked to yield" + askText(s.Asked)
	}
	return text
}

func targetsText(s lockkeeper.Status) string {
	texts := make([]string, len(s.Grants))
	for i, g := range s.Grants {
		texts[i] = g.String()
	}
	return strings.Join(texts, ", ")
}

// onPath is blockerText with the path at which they meet.
func onPath(b lockkeeper.Blocker) string { return fmt.Sprintf("%s: %s", b.Path, blockerText(b)) }

// atRoot is onPath for one who waits for nobody: "in the end: ci-17 holds db/a
// for 2m (nightly, https://ci/17)".
func atRoot(b lockkeeper.Blocker) string {
	if b.Why != lockkeeper.HeldBy {
		return "in the end: " + onPath(b)
	}
	return fmt.Sprintf("in the end: %s holds %s for %s%s%s", who(b.Label, b.Ref), b.Path, passed(b.Age), about(b.Label), leftText(b.Left))
}

// ownReasons spells out why a claim waits where no other claim says it.
func ownReasons(s lockkeeper.Status) []string {
	var texts []string
	for _, why := range s.Waits {
		switch {
		case why == lockkeeper.OwnLimit:
			texts = append(texts, limitText(s))
		case why == lockkeeper.QuietPeriod:
			texts = append(texts, "nobody is in its way; it waits until it has been quiet there for as long as it asked for")
		case why == lockkeeper.Resuming:
			texts = append(texts, "the engine has restarted, and the program that waits has not come back yet")
		case len(s.Blockers) == 0:
			texts = append(texts, why.String())
		}
	}
	return texts
}

// limitText says which limit of its own a claim waits for.
func limitText(s lockkeeper.Status) string {
	var limits []string
	for _, g := range s.Grants {
		if g.Mode == lockkeeper.ModePermits {
			limits = append(limits, fmt.Sprintf("%d of %s", g.Limit, g.Path))
		}
	}
	return "more would be in use than its own limit allows: " + strings.Join(limits, ", ")
}
