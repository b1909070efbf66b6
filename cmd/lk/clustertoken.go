package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// joinTokenOptions are the arguments of lk cluster token and its subcommands.
type joinTokenOptions struct {
	*clusterOptions
	life time.Duration
	out  string
	id   string
	json bool
}

func (a *app) newClusterToken(c *clusterOptions) *cobra.Command {
	o := &joinTokenOptions{clusterOptions: c}
	cmd := &cobra.Command{
		Use:        "token",
		Aliases:    []string{"add"},
		SuggestFor: []string{"invite", "join-token"},
		Short:      "Print a token by which one new node joins",
		Long: `Print a token by which one new node joins the cluster. It is valid once, for an hour, and
names the cluster's authority, so the new node gives the secret to nobody else.

Keep it secret: a machine that has it becomes a node, with a copy of the keys of the cluster.
Copy it to the new machine as a file that only its server's user can read, and give that to
lk serve --join FILE; or set ` + quorumlock.TokenVariable + ` there.`,
		Example: `  # for one more node
  lk cluster token --out token
  scp -p token two.example.com:

  # and there
  lk serve --join token --peers 10.0.0.2 --listen 10.0.0.2:7420 --insecure`,
		Args: a.takes(0, 0),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.joinTokenNew(cmd.Context(), o) }),
	}
	o.life = quorumlock.DefaultTokenLife
	addSpan(cmd, &a.bad, &o.life, "life", 0, "the token ends D from now: 1m to 7d")
	cmd.Flags().StringVarP(&o.out, "out", "o", "", "write the token to `FILE`, which must not exist and which only this "+
		"user can read, instead of printing it")
	cmd.AddCommand(a.newJoinTokenLs(o), a.newJoinTokenWithdraw(o))
	return cmd
}

func (a *app) newJoinTokenLs(o *joinTokenOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List join tokens, without their secrets",
		Long: "List the join tokens that were not withdrawn: their names, until when they can be used, and by " +
			"whom they were.",
		Example: `  # all join tokens
  lk cluster token ls

  # those that nobody has used
  lk cluster token ls --json | jq -r 'select(.used_by == null).id'`,
		Args: a.takes(0, 0),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.joinTokenLs(cmd.Context(), o) }),
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object a line; durations are in seconds")
	return cmd
}

func (a *app) newJoinTokenWithdraw(o *joinTokenOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "withdraw ID",
		Short: "Make a join token useless",
		Long:  "Make the join token of that name, as lk cluster token ls prints it, useless. A node that joined by it stays.",
		Example: `  # what is it called?
  lk cluster token ls

  # a token that was lost
  lk cluster token withdraw 3f9a1c0be2d45a60`,
		Args: a.checkedAlone(func(_ *cobra.Command, args []string) {
			if len(args) != 1 {
				a.bad.addf("%s: name one, as lk cluster token ls prints it", plural(len(args), "token"))
				return
			}
			o.id = args[0]
		}),
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			if err := o.ask(cmd.Context(), withdrawVerb, o.id, nil); err != nil {
				return err
			}
			fmt.Fprintln(a.stderr, "lk: nobody can join by that token any more")
			return nil
		}),
	}
}

func (a *app) joinTokenNew(ctx context.Context, o *joinTokenOptions) error {
	var text string
	ask := func() error { return o.ask(ctx, tokenVerb, o.life, &text) }
	if o.out == "" {
		if err := ask(); err != nil {
			return err
		}
		fmt.Fprintln(a.stdout, text)
	} else if err := writeSecret(o.out, ask, &text); err != nil {
		return err
	}
	a.sayJoin(ctx, o)
	return nil
}

// writeSecret creates a file for this user alone, and writes the text to it that get provides. If
// anything fails, there is no file.
func writeSecret(file string, get func() error, text *string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if err = get(); err == nil {
		_, err = fmt.Fprintln(f, *text)
		err = errors.Join(err, f.Close())
	} else {
		f.Close()
	}
	if err != nil {
		os.Remove(file)
	}
	return err
}

func (a *app) joinTokenLs(ctx context.Context, o *joinTokenOptions) error {
	var tokens []quorumlock.TokenStatus
	if err := o.ask(ctx, tokensVerb, nil, &tokens); err != nil {
		return err
	}
	if len(tokens) == 0 {
		fmt.Fprintln(a.stderr, "lk: there is no join token: lk cluster token makes one")
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for i := range tokens {
		t := &tokens[i]
		if o.json {
			row := joinTokenRow{ID: t.ID, Left: seconds(t.Left), UsedBy: t.UsedBy}
			if err := json.NewEncoder(a.stdout).Encode(row); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%s\n", t.ID, tokenState(t))
	}
	return w.Flush()
}

// tokenState says whether a new node can join by the token. A used one admits nobody else.
func tokenState(t *quorumlock.TokenStatus) string {
	switch {
	case t.UsedBy != "":
		return "used by " + t.UsedBy
	case t.Left > 0:
		return "unused  for " + duration.Remaining(t.Left) + " more"
	}
	return "unused  ended"
}

// joinTokenRow is a join token in JSON.
type joinTokenRow struct {
	ID     string  `json:"id"`
	Left   float64 `json:"left"` // seconds; 0: it has ended
	UsedBy string  `json:"used_by,omitempty"`
}

// seconds rounds to milliseconds.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
