package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/listing"
)

func (a *app) newWhy() *cobra.Command {
	var path lockkeeper.Path
	var asJSON, asCode bool
	cmd := &cobra.Command{
		Use:        "why [PATH]",
		SuggestFor: []string{"explain", "blocked", "who"},
		Short:      "Explain why a path is not free, or why claims wait",
		Long: `Print every claim that explains why PATH is not free, one a line: holders and freezes first,
then waiters in line, each with its position and its blocker, also those elsewhere. If PATH
is free, lk says so. Without PATH, lk explains all waits. With --exit-code, a script learns
whether PATH is free now; to take it if it is, use lk run --try.

"about 2m to go" is an estimate, from announced ends and from recent holds of the path.`,
		Example: `  # why does my test not start?
  lk why mydatabase/mytest

  # is it free? (exit code 75 if not)
  lk why --exit-code mydatabase >/dev/null && echo free

  # all waits
  lk why

  # the holders that somebody waits for
  lk why --json mydatabase | jq -r 'select(.state == "held").as'`,
		Args: a.checked(func(_ *cobra.Command, args []string) {
			if path = a.onePath(args); path == "" && asCode {
				a.bad.addf("--exit-code needs a PATH: is what free?")
			}
		}),
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
			concerned := listing.Explaining(path, all)
			if asJSON {
				for _, s := range concerned {
					if err := writeJSON(a.stdout, s); err != nil {
						return err
					}
				}
			} else if err := writeWhy(a.stdout, path, all); err != nil {
				return err
			}
			if len(concerned) == 0 && !asJSON {
				a.hidden(client)
			}
			if len(concerned) > 0 && asCode {
				return &exit{code: exitNotAcquired}
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asCode, "exit-code", false, "exit with 75 if PATH is not free")
	cmd.Flags().BoolVar(&asJSON, "json", false,
		"print the claims concerned, one JSON object a line; durations are in seconds")
	return cmd
}

// listAll reads all claims of q in one list, so that the chain from a waiter to the
// root is of one moment.
func listAll(ctx context.Context, client *lockkeeper.Client, q lockkeeper.Query) ([]lockkeeper.Status, error) {
	var all []lockkeeper.Status
	for status, err := range client.List(ctx, q) {
		if err != nil {
			return all, err
		}
		all = append(all, status)
	}
	return all, nil
}

// writeWhy explains why path is not free; without a path, why anybody waits. Each
// claim has one line: holders and freezes first, then the waiters.
func writeWhy(to io.Writer, path lockkeeper.Path, all []lockkeeper.Status) error {
	concerned := listing.Explaining(path, all)
	e := explainer{to: to, listed: map[lockkeeper.Ref]string{}, used: permitsInUse(all)}
	switch {
	case path == "" && len(concerned) == 0:
		e.linef("nobody waits")
	case len(concerned) == 0:
		e.linef("%s is free", path)
	}
	for _, s := range concerned {
		e.listed[s.Ref] = who(s.Label, s.Ref)
	}
	for _, s := range concerned {
		if !listing.Waits(s) {
			e.linef("%s", holdText(s))
		}
	}
	for _, s := range concerned {
		if listing.Waits(s) {
			e.linef("%s", e.waitText(s))
		}
	}
	return e.err
}

// permitsInUse counts the held permits of each path.
func permitsInUse(all []lockkeeper.Status) map[lockkeeper.Path]int {
	used := map[lockkeeper.Path]int{}
	for _, s := range all {
		for _, g := range s.Grants {
			if s.State == lockkeeper.Held && g.Mode == lockkeeper.ModePermits {
				used[g.Path] += g.Units
			}
		}
	}
	return used
}

// explainer writes a line for each claim.
type explainer struct {
	to     io.Writer
	listed map[lockkeeper.Ref]string // names of the claims that have a line
	used   map[lockkeeper.Path]int   // permits held
	err    error
}

func (e *explainer) linef(format string, args ...any) {
	if e.err == nil {
		_, e.err = fmt.Fprintf(e.to, format+"\n", args...)
	}
}

// waitText: "ci-18 waits for exclusive db for 12s (deploy): 2nd in line, behind ci-17". It
// names the hold in which the claim waits, if there is one.
func (e *explainer) waitText(s lockkeeper.Status) string {
	name := who(s.Label, s.Ref)
	if outer, ok := e.listed[s.Inside]; ok && s.Inside != (lockkeeper.Ref{}) {
		name += ", inside the hold of " + outer + ","
	}
	return waiting(name, s, e.reasons(s)...)
}

// waitText is the line of a waiter without its blockers: "ci-18 waits for exclusive db for 12s
// (deploy): 2nd in line".
func waitText(s lockkeeper.Status) string { return waiting(who(s.Label, s.Ref), s) }

func waiting(name string, s lockkeeper.Status, reasons ...string) string {
	text := fmt.Sprintf("%s waits for %s for %s%s", name, targetsText(s), duration.Elapsed(s.Age), about(s.Label))
	if s.Converting {
		text = fmt.Sprintf("%s holds %s for %s and waits to have it alone%s", name, targetsText(s), duration.Elapsed(s.Age),
			about(s.Label))
	}
	var parts []string
	if text := positionText(s); text != "" {
		parts = append(parts, text)
	}
	if s.ETA > 0 {
		parts = append(parts, "about "+duration.Remaining(s.ETA)+" to go")
	}
	if parts = append(parts, reasons...); len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

// mostReasons bounds how many paths or claims the line of one waiter names.
const mostReasons = 3

// reasons say why s waits. Its blockers have their own lines, so reasons only names them.
// Of several claims that wait ahead of s at a path it names the last one, whose line
// names the next.
func (e *explainer) reasons(s lockkeeper.Status) []string {
	texts := ownReasons(s)
	if full := e.fullPermits(s); full != "" {
		texts = slices.DeleteFunc(texts, func(text string) bool { return text == limitText(s) })
		return append(texts, full)
	}
	behind := map[lockkeeper.Path]int{} // the last blocker that waits ahead at a path
	for i, b := range s.Blockers {
		if b.Why == lockkeeper.Behind {
			behind[b.Path] = i
		}
	}
	var nearest []lockkeeper.Blocker
	for i, b := range s.Blockers {
		if last, ok := behind[b.Path]; !ok || i == last {
			nearest = append(nearest, b)
		}
	}
	for i, b := range nearest {
		if i == mostReasons {
			least := ""
			if len(s.Blockers) >= lockkeeper.MaxBlockers { // the engine names no more
				least = "at least "
			}
			return append(texts, fmt.Sprintf("and %s%d more", least, len(nearest)-i))
		}
		texts = append(texts, e.blockerName(s, b))
	}
	return texts
}

// blockerName is "held by ci-17 at db/a", without the path if s has only that path.
func (e *explainer) blockerName(s lockkeeper.Status, b lockkeeper.Blocker) string {
	name, ok := e.listed[b.Ref]
	if !ok || b.Ref == (lockkeeper.Ref{}) {
		return blockerText(b) + at(s, b)
	}
	if b.Why == lockkeeper.Behind && len(s.Blockers) >= lockkeeper.MaxBlockers {
		name += " and others" // the engine names at most MaxBlockers
	}
	if b.Why == lockkeeper.Frozen {
		name = "by " + name
	}
	return fmt.Sprintf("%s %s%s", b.Why, name, at(s, b))
}

func at(s lockkeeper.Status, b lockkeeper.Blocker) string {
	if len(s.Grants) == 1 && s.Grants[0].Path == b.Path {
		return ""
	}
	return " at " + string(b.Path)
}

// fullPermits reports a path whose permits are all in use, "" if s waits for none.
func (e *explainer) fullPermits(s lockkeeper.Status) string {
	if len(s.Blockers) == 0 {
		return ""
	}
	for _, g := range s.Grants {
		if g.Mode == lockkeeper.ModePermits && e.used[g.Path] == g.Limit {
			return fmt.Sprintf("all %s of %s are in use", plural(g.Limit, "permit"), g.Path)
		}
	}
	return ""
}

// holdText: "ci-17 holds exclusive db/a for 2m, fence 41 (nightly)".
func holdText(s lockkeeper.Status) string {
	if s.State == lockkeeper.Freezing {
		return fmt.Sprintf("%s is frozen by %s for %s more%s", frozenPath(s.Grants[0].Path), who(s.Label, s.Ref),
			duration.Remaining(s.Left), about(s.Label))
	}
	text := fmt.Sprintf("%s holds %s for %s, fence %d%s", who(s.Label, s.Ref), targetsText(s), duration.Elapsed(s.Age),
		s.Fence,
		about(s.Label))
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
