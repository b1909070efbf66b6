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

// revokeOptions are the arguments of lk revoke.
type revokeOptions struct {
	path   lockkeeper.Path
	claims []string
	refs   []lockkeeper.Ref // of claims
	as     string
	all    bool
	force  bool
	note   string
	json   bool
}

func (a *app) newRevoke() *cobra.Command {
	o := &revokeOptions{}
	cmd := &cobra.Command{
		Use:        "revoke PATH | --claim CLAIM | --as WHO [flags]",
		SuggestFor: []string{"kill", "break", "steal", "take"},
		Short:      "Take a lock away from its holder",
		Long: `Take locks away from their holders: the locks at PATH and below it, one claim (--claim), or
the claims of one owner (--as). lk asks the holder to release, and takes the lock after the
holder's TTL. With --force it takes the lock at once; the next claim may be granted before
the holder notices.

lk run stops its command when its lock is taken. A waiting claim, named by --claim or --as,
leaves the line at once.

If there are several holders, choose with --claim (see lk ls --long), --as, or --all. If
there is nothing to revoke, the exit code is 1.`,
		Example: `  # ask the holder of mydatabase/mytest to stop, and take the lock after its TTL
  lk revoke mydatabase/mytest --note "the disk is full, see the runbook"

  # of several holders, only this one
  lk revoke testsite --as ci-17 --note "hangs since noon"

  # one claim, as lk ls --long lists it, at once
  lk revoke --claim 3KX7VQ.1 --force --note "its machine is gone"

  # all holders below mydatabase
  lk revoke mydatabase --all --note "restore from backup"`,
		DisableFlagsInUseLine: true,
		Args:                  a.checked(func(_ *cobra.Command, args []string) { o.check(a, args) }),
		RunE:                  verb(func(cmd *cobra.Command, _ []string) error { return a.revoke(cmd.Context(), o) }),
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.claims, "claim", nil, "revoke this `CLAIM`, as lk ls --long lists it; may be repeated")
	f.StringVar(&o.as, "as", "", "revoke what `WHO` holds or waits for")
	f.BoolVar(&o.all, "all", false, "revoke all locks there")
	f.BoolVar(&o.force, "force", false, "take it at once, without asking the holder")
	f.StringVar(&o.note, "note", "", "`WHY`, for the holder and others")
	f.BoolVar(&o.json, "json", false, "print what was done, one JSON object a line; durations are in seconds")
	return cmd
}

func (o *revokeOptions) check(a *app, args []string) {
	if len(args) > 1 {
		a.bad.addf("%d paths: name one, or use --all at a path above them", len(args))
	} else if len(args) == 1 {
		o.path = a.path(args[0])
	}
	if len(args) == 0 && len(o.claims) == 0 && o.as == "" {
		a.bad.addf("nothing is named: give a PATH, --claim or --as; lk ls --long lists what there is")
	}
	if len(o.claims) > 0 && (len(args) > 0 || o.as != "" || o.all) {
		a.bad.addf("--claim names the claim by itself: leave out PATH, --as and --all")
	}
	for _, text := range o.claims {
		ref, err := lockkeeper.ParseRef(text)
		a.bad.add(err)
		if !slices.Contains(o.refs, ref) {
			o.refs = append(o.refs, ref)
		}
	}
	a.bad.add((&lockkeeper.Ending{Kind: lockkeeper.Revoke, Label: o.label()}).Check())
}

func (o *revokeOptions) label() lockkeeper.Label {
	return lockkeeper.Label{As: userAtHost(), Note: o.note}
}

// operator connects an operator who needs the feature. The caller closes the client, unless there is an error. If
// nobody ever had a lock, the error is a plain failure.
func (a *app) operator(ctx context.Context, needs lockkeeper.Features) (*connection, error) {
	client, err := a.connectExisting(ctx)
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, &exit{code: exitFailure}
	}
	if err := client.Guarantees().RefuseWithout(needs); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// revoke revokes the selected claims, and prints the effect for each.
func (a *app) revoke(ctx context.Context, o *revokeOptions) error {
	client, err := a.operator(ctx, lockkeeper.FeatureRevoke)
	if err != nil {
		return err
	}
	defer client.Close()
	chosen, err := o.chosen(ctx, client)
	if err != nil {
		defer a.hidden(client)
		return err
	}
	for _, s := range chosen {
		switch err := client.Revoke(ctx, s.Ref, o.force, o.label()); {
		case errors.Is(err, lockkeeper.ErrNotHeld) && s.State == 0:
			defer a.hidden(client)
			return noSuchClaim(s.Ref)
		case errors.Is(err, lockkeeper.ErrNotHeld):
			fmt.Fprintf(a.stderr, "lk: %s has just ended by itself\n", s.Ref)
			continue
		case err != nil:
			return err
		}
		if err := a.printRevocation(ctx, client.Client, s, o); err != nil {
			return err
		}
	}
	if o.note == "" {
		fmt.Fprintln(a.stderr, "lk: the holder sees no reason: give one with --note")
	}
	return nil
}

// chosen returns the claims to revoke.
func (o *revokeOptions) chosen(ctx context.Context, client *connection) ([]lockkeeper.Status, error) {
	if len(o.refs) > 0 {
		return o.named(ctx, client)
	}
	all, err := listAll(ctx, client.Client, lockkeeper.Query{})
	if err != nil {
		return nil, err
	}
	return o.choose(all)
}

// named returns the claims of --claim. It asks for each by itself, since lists of all claims have a quota. The State
// is 0 of a claim that is hidden from this identity, which may be allowed to revoke it all the same.
func (o *revokeOptions) named(ctx context.Context, client *connection) (chosen []lockkeeper.Status, err error) {
	for _, ref := range o.refs {
		s := lockkeeper.Status{}
		for s, err = range client.List(ctx, lockkeeper.Query{Ref: ref}) {
			break
		}
		switch {
		case err != nil && !errors.Is(err, lockkeeper.ErrDenied):
			return nil, err
		case s.State == lockkeeper.Held, s.State == lockkeeper.Waiting:
			chosen = append(chosen, s)
		case s.State == 0 && (err != nil || client.Guarantees().Partial):
			chosen = append(chosen, lockkeeper.Status{Ref: ref})
		default:
			return nil, noSuchClaim(ref)
		}
	}
	return chosen, nil
}

func noSuchClaim(ref lockkeeper.Ref) error {
	return nothingToRevoke("%s neither holds nor waits: lk ls --long lists the claims that there are", ref)
}

// choose selects the claims to revoke by path and owner. It returns an error if the choice is ambiguous.
func (o *revokeOptions) choose(all []lockkeeper.Status) ([]lockkeeper.Status, error) {
	all = slices.DeleteFunc(slices.Clone(all), func(s lockkeeper.Status) bool { return s.State == lockkeeper.Freezing })
	var held, waiting, above []lockkeeper.Status
	for _, s := range all {
		if o.as != "" && s.As != o.as {
			continue
		}
		switch inside := o.path == "" || inside(o.path, s); {
		case inside && s.State == lockkeeper.Held:
			held = append(held, s)
		case inside:
			waiting = append(waiting, s)
		case s.State == lockkeeper.Held && slices.ContainsFunc(s.Grants, func(g lockkeeper.Grant) bool {
			return g.Path.Covers(o.path)
		}):
			above = append(above, s)
		}
	}
	where := o.where()
	switch {
	case o.as != "" && len(held)+len(waiting) > 0:
		return append(held, waiting...), nil
	case len(held) == 0 && len(above) > 0:
		return nil, nothingToRevoke("nobody holds %s itself, but above it:%s\nlk revoke --claim takes one of them", where,
			listOf(above))
	case len(held) == 0 && len(waiting) > 0:
		return nil, nothingToRevoke("nobody holds %s, but some wait for it:%s\nlk revoke --claim or --as sends one of "+
			"them away", where, listOf(waiting))
	case len(held) == 0:
		return nil, nothingToRevoke("nobody holds %s", where)
	case len(held) > 1 && !o.all:
		return nil, &exit{code: exitUsage, say: fmt.Errorf("%d hold %s: say which with --claim or --as, or --all:%s",
			len(held), where, listOf(held))}
	}
	return held, nil
}

// inside reports whether a claim has a target at path or below it.
func inside(path lockkeeper.Path, s lockkeeper.Status) bool {
	return slices.ContainsFunc(s.Grants, func(g lockkeeper.Grant) bool { return path.Covers(g.Path) })
}

// where describes the selection of the user, for messages.
func (o *revokeOptions) where() string {
	text := "anything"
	if o.path != "" {
		text = strconv.Quote(string(o.path))
	}
	if o.as != "" {
		text += " as " + strconv.Quote(o.as)
	}
	return text
}

func nothingToRevoke(format string, args ...any) error {
	return &exit{code: exitFailure, say: fmt.Errorf(format, args...)}
}

// listOf lists claims with the reference for --claim, a line each.
func listOf(claims []lockkeeper.Status) string {
	var b strings.Builder
	for _, s := range claims {
		text := holdText(s)
		if s.State == lockkeeper.Waiting {
			text = waitText(s)
		}
		fmt.Fprintf(&b, "\n  %s  %s", s.Ref, text)
	}
	return b.String()
}

// printRevocation prints the effect of the revocation of s, and when it takes place, as far as this identity may see
// the claim.
func (a *app) printRevocation(
	ctx context.Context, client *lockkeeper.Client, s lockkeeper.Status, o *revokeOptions,
) error {
	now := s // if the engine no longer lists it, it has ended
	now.State, now.Asked, now.Reason = lockkeeper.Ended, nil, lockkeeper.Revoked
	if !o.force {
		now.Reason = lockkeeper.Yielded
	}
	seen := s.State != 0
	for status, err := range client.List(ctx, lockkeeper.Query{Ref: s.Ref}) {
		if seen = err == nil; seen {
			now = status
		}
	}
	name, what := who(s.Label, s.Ref), briefTargets(s)
	if s.State == 0 {
		what = "its locks"
	}
	event, text := "lost", fmt.Sprintf("%s has lost %s", name, what)
	switch {
	case s.State == lockkeeper.Waiting:
		event, text = "refused", fmt.Sprintf("%s waits for %s no longer", name, what)
	case !seen && !o.force:
		now.State, now.Reason = lockkeeper.Held, lockkeeper.NoReason
		event, text = "asked", fmt.Sprintf("%s is asked to yield %s", name, what)
	case now.State == lockkeeper.Held && now.Asked != nil:
		event, text = "asked", fmt.Sprintf("%s is asked to yield %s, and loses it in %s at the latest", name, what,
			duration.Remaining(now.Asked.Left))
		if now.Asked.Left > time.Minute {
			text += "; --force takes it at once"
		}
	case now.State == lockkeeper.Ended && (now.Reason == lockkeeper.Released || now.Reason == lockkeeper.Yielded):
		event, text = "released", fmt.Sprintf("%s has released %s", name, what)
	}
	if o.json {
		return writeEvent(a.stdout, time.Now(), event, text, now)
	}
	_, err := fmt.Fprintln(a.stdout, text)
	return err
}
