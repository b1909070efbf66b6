package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/internal/pki"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// tokenOptions are the arguments of lk token and its subcommands.
type tokenOptions struct {
	file    string
	name    string
	note    string
	expires time.Duration
	json    bool
}

func (a *app) newToken() *cobra.Command {
	o := &tokenOptions{}
	cmd := &cobra.Command{
		Use:        "token",
		SuggestFor: []string{"tokens", "login", "auth", "key"},
		Short:      "Create, list and revoke tokens of clients",
		Long: `Create, list and revoke tokens. A token is a secret by which a client authenticates to a server
that was started with --tokens FILE. The file has a line for each token, with its name and
digest, but not the secret. Servers apply changes within seconds, and disconnect clients
whose token is revoked.

A client finds its token in LOCKKEEPER_TOKEN, or in the file that LOCKKEEPER_TOKEN_FILE or
?token=FILE in its URL names. Several tokens may have one name, so that you can hand out a
new one before you revoke the old one.`,
		Example: `  # a token for the CI machines, into a file that only they read
  lk token new ci --tokens /etc/lockkeeper/tokens >ci-token

  # a server that accepts it
  lk serve --listen :7420 --tokens /etc/lockkeeper/tokens --tls-cert server.pem --tls-key server-key.pem`,
		Args: a.checkedAlone(func(cmd *cobra.Command, args []string) {
			if len(args) > 0 {
				a.bad.addf("unknown command %q for lk token: there are new, ls, revoke", args[0])
			}
		}),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&o.file, "tokens", "", "`FILE` with the tokens (default $"+serveVariables+
		"TOKENS, else tokens beside the default --data of lk serve)")
	cmd.AddCommand(a.newTokenNew(o), a.newTokenLs(o), a.newTokenRevoke(o))
	return cmd
}

func (a *app) newTokenNew(o *tokenOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Create a token for NAME, and print it once",
		Long:  "Create a token for NAME, print it on stdout, and add its digest to the file. It is never shown again.",
		Example: `  # a token that expires
  lk token new ci --expires 90d --note 'the CI machines' >ci-token

  # a token in the file of a server
  lk token new deploy --tokens /etc/lockkeeper/tokens >deploy-token`,
		Args: a.checkedAlone(func(_ *cobra.Command, args []string) { o.oneName(a, args) }),
		RunE: verb(func(*cobra.Command, []string) error { return a.tokenNew(o) }),
	}
	addSpan(cmd, &a.bad, &o.expires, "expires", 0, "the token expires D from now (default: never)")
	cmd.Flags().StringVar(&o.note, "note", "", "`TEXT` for people, such as where the token is kept")
	return cmd
}

func (a *app) newTokenLs(o *tokenOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List tokens, without their secrets",
		Long:  "List the tokens of the file: name, start of the digest, creation and expiry.",
		Example: `  # all tokens
  lk token ls

  # expired tokens
  lk token ls --json | jq -r 'select(.expired).name'`,
		Args: a.takes(0, 0),
		RunE: verb(func(*cobra.Command, []string) error { return a.tokenLs(o) }),
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print one JSON object a line")
	return cmd
}

func (a *app) newTokenRevoke(o *tokenOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME",
		Short: "Revoke all tokens of NAME, or the one of a digest",
		Long:  "Revoke all tokens of NAME; or the one whose digest begins with NAME, as lk token ls prints it.",
		Example: `  # all tokens of a name
  lk token revoke ci

  # one token, by the digest that lk token ls prints
  lk token revoke 3f9a1c0be2d4`,
		Args: a.checkedAlone(func(_ *cobra.Command, args []string) { o.oneName(a, args) }),
		RunE: verb(func(*cobra.Command, []string) error { return a.tokenRevoke(o) }),
	}
}

// oneName reads the one argument.
func (o *tokenOptions) oneName(a *app, args []string) {
	if len(args) != 1 {
		a.bad.addf("%s: name one, such as ci", plural(len(args), "name"))
		return
	}
	o.name = args[0]
	a.bad.add(access.IdentityName(o.name))
}

// path returns the token file.
func (o *tokenOptions) path() (string, error) {
	if o.file != "" {
		return o.file, nil
	}
	if named := os.Getenv(serveVariables + "TOKENS"); named != "" {
		return named, nil
	}
	folder, err := stateFolder()
	return filepath.Join(folder, "tokens"), err
}

// tokenNew creates a token. It prints the token only after its digest is on disk.
func (a *app) tokenNew(o *tokenOptions) error {
	path, err := o.path()
	if err != nil {
		return err
	}
	secret, digest := access.NewToken()
	token := access.Token{Name: o.name, Digest: digest, Created: time.Now(), Note: o.note}
	if o.expires > 0 {
		token.Expires = token.Created.Add(o.expires)
	}
	if err := pki.AddToken(path, token); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, secret)
	fmt.Fprintf(a.stderr, "lk: the token is not shown again; its digest is in %s. Start servers with "+
		"--tokens %s\n", path, path)
	if o.expires > 0 {
		fmt.Fprintf(a.stderr, "lk: it expires at %s\n", rowOf(token).Expires)
	}
	return nil
}

// tokenLs lists the tokens.
func (a *app) tokenLs(o *tokenOptions) error {
	path, err := o.path()
	if err != nil {
		return err
	}
	tokens, err := pki.ReadTokens(path)
	if err != nil {
		return err
	}
	if len(tokens) == 0 {
		fmt.Fprintf(a.stderr, "lk: there is no token in %s\n", path)
	}
	if o.json {
		for _, t := range tokens {
			if err := json.NewEncoder(a.stdout).Encode(rowOf(t)); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, t := range tokens {
		r := rowOf(t)
		until := "no expiry"
		if r.Expires != "" {
			until = "until " + r.Expires
		}
		if r.Expired {
			until = "expired " + r.Expires
		}
		fmt.Fprintf(w, "%s\t%s\tsince %s\t%s\t%s\n", r.Name, r.Digest, r.Created, until, r.Note)
	}
	return w.Flush()
}

// tokenRow is a token as lk token ls shows it.
type tokenRow struct {
	Name    string `json:"name"`
	Digest  string `json:"digest"` // its beginning
	Created string `json:"created"`
	Expires string `json:"expires,omitempty"`
	Expired bool   `json:"expired,omitempty"`
	Note    string `json:"note,omitempty"`
}

func rowOf(t access.Token) tokenRow {
	r := tokenRow{
		Name:    t.Name,
		Digest:  t.Digest.String()[:pki.DigestChars],
		Created: t.Created.Format(time.DateOnly),
		Note:    t.Note,
	}
	if !t.Expires.IsZero() {
		r.Expires, r.Expired = t.Expires.UTC().Format(time.RFC3339), !time.Now().Before(t.Expires)
	}
	return r
}

// tokenRevoke removes tokens from the file.
func (a *app) tokenRevoke(o *tokenOptions) error {
	path, err := o.path()
	if err != nil {
		return err
	}
	removed, err := pki.RemoveTokens(path, o.name)
	if err != nil {
		return err
	}
	if removed == 0 {
		return &exit{code: exitFailure, say: fmt.Errorf("%s has no token of %s: lk token ls lists them", path, o.name)}
	}
	fmt.Fprintf(a.stderr, "lk: %s of %s revoked; servers disconnect its clients within seconds\n",
		plural(removed, "token"), o.name)
	return nil
}
