package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

func (a *app) newClusterPolicy(o *clusterOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "policy",
		SuggestFor: []string{"rules", "quotas", "rights", "acl", "access"},
		Short:      "Show, set or remove the rules and quotas of the cluster",
		Long: `Show, set or remove the policy of the cluster: the rules and quotas that say what each
identity may do, at whichever node it arrives. It is in the log of the cluster, and the
leader decides by it: a change counts for all nodes at one moment, and an identity has its
quota once in the whole cluster.

Without a policy, each server decides by its own configuration file. With one, the rules and
quotas of these files no longer count, each server only authenticates its clients (--tokens,
--client-ca), and a server that authenticates nobody admits nobody.`,
		Example: `  # what counts now?
  lk cluster policy show

  # a file with rules and quotas, as lk serve --config has them
  lk cluster policy set policy.yaml`,
		Args: a.checkedAlone(func(_ *cobra.Command, args []string) {
			if len(args) > 0 {
				a.bad.addf("unknown command %q for lk cluster policy: there are show, set, remove", args[0])
			}
		}),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.newPolicyShow(o), a.newPolicySet(o), a.newPolicyRemove(o))
	return cmd
}

func (a *app) newPolicyShow(o *clusterOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Print the policy of the cluster",
		Long:  "Print the policy of the cluster as lk cluster policy set reads it. Comments are not kept.",
		Example: `  # who may do what
  lk cluster policy show

  # change it
  lk cluster policy show >policy.yaml
  vi policy.yaml
  lk cluster policy set policy.yaml`,
		Args: a.takes(0, 0),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.policyShow(cmd.Context(), o) }),
	}
}

func (a *app) newPolicySet(o *clusterOptions) *cobra.Command {
	var file string
	return &cobra.Command{
		Use:   "set FILE",
		Short: "Set the policy of the cluster",
		Long: `Set the policy of the cluster: the rules and quotas in FILE (YAML), which has nothing else. A
policy with a mistake is refused, and changes nothing. When lk returns, the leader decides by
the new policy. What identities have already, they keep and may release.

A node that authenticates nobody refuses to set one. The others are not asked: first start all
nodes with --tokens or --client-ca.`,
		Example: `  # everybody may see everything, and ci may lock one tree
  printf 'rules:\n  - {who: ["*"], may: [look], paths: ["*"]}\n  - {who: [ci], may: [lock], paths: [db]}\n' >policy.yaml
  lk cluster policy set policy.yaml

  # at a node on this machine whose folder is not the usual one
  lk cluster policy set policy.yaml --data /srv/lk`,
		Args: a.checkedAlone(func(_ *cobra.Command, args []string) {
			if len(args) != 1 {
				a.bad.addf("%s: name the file of the policy", plural(len(args), "file"))
				return
			}
			file = args[0]
		}),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.policySet(cmd.Context(), o, file) }),
	}
}

func (a *app) newPolicyRemove(o *clusterOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "remove",
		Short: "Let each server decide by its own configuration again",
		Long: "Remove the policy of the cluster. From then on each server decides by the rules and quotas of its own " +
			"configuration file; without any, all its clients may do everything.",
		Example: `  # what is it?
  lk cluster policy show

  # each server has rules of its own again
  lk cluster policy remove`,
		Args: a.takes(0, 0),
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			if err := o.ask(cmd.Context(), setVerb, nil, nil); err != nil {
				return err
			}
			fmt.Fprintln(a.stderr, "lk: the cluster has no policy: each server decides by its own configuration")
			return nil
		}),
	}
}

func (a *app) policyShow(ctx context.Context, o *clusterOptions) error {
	var p *access.Policy
	if err := o.ask(ctx, policyVerb, nil, &p); err != nil {
		return err
	}
	if p == nil {
		fmt.Fprintln(a.stderr, "lk: the cluster has no policy: each server decides by its own configuration")
		return nil
	}
	return writePolicy(a.stdout, p)
}

// writePolicy writes a file that readPolicy reads: a list of rules and one of quotas, one a line, in the
// flow style of YAML, which is JSON.
func writePolicy(w io.Writer, p *access.Policy) error {
	var text bytes.Buffer
	lines := json.NewEncoder(&text) // a yaml.Encoder adds 60 kB to lk
	lines.SetEscapeHTML(false)
	text.WriteString("rules:\n")
	for _, r := range p.Rules {
		text.WriteString("  - ")
		if err := lines.Encode(r); err != nil {
			return err
		}
	}
	if len(p.Quotas) > 0 {
		text.WriteString("quotas:\n")
	}
	for _, q := range p.Quotas {
		text.WriteString("  - ")
		if err := lines.Encode(q); err != nil {
			return err
		}
	}
	_, err := w.Write(text.Bytes())
	return err
}

func (a *app) policySet(ctx context.Context, o *clusterOptions, file string) error {
	p, err := readPolicy(file)
	if err != nil {
		return &exit{code: exitUsage, say: err}
	}
	if err := o.ask(ctx, setVerb, p, nil); err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "lk: the policy of the cluster has %s and %s\n", plural(len(p.Rules), "rule"),
		plural(len(p.Quotas), "quota"))
	return nil
}

// readPolicy reads rules and quotas as the configuration of lk serve has them, and nothing else.
func readPolicy(file string) (*access.Policy, error) {
	c, err := readKeys(file, "use lk cluster policy remove (a policy without rules would deny everybody everything)")
	if err != nil {
		return nil, err
	}
	for key, set := range c.Settings {
		err = errors.Join(err, fmt.Errorf("%s:%d: unknown key %q: a policy has rules and quotas", file, set.line, key))
	}
	if err == nil && len(c.Rules) == 0 {
		err = fmt.Errorf("%s: it has no rules, and would deny everybody everything: name rules, or use lk cluster policy "+
			"remove", file)
	}
	if err != nil {
		return nil, err
	}
	p := &access.Policy{Rules: c.Rules, Quotas: c.Quotas}
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}
