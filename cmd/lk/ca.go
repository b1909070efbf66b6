package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/pki"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// caOptions are the arguments of lk ca.
type caOptions struct {
	folder  string
	clients []string
	hosts   []string
}

func (a *app) newCA() *cobra.Command {
	o := &caOptions{}
	cmd := &cobra.Command{
		Use:        "ca [HOST...]",
		SuggestFor: []string{"cert", "certificate", "tls", "pki"},
		Short:      "Create certificates for a first try with TLS",
		Long: `Create a small certificate authority, a certificate for a server that clients reach as HOST,
and one for each --client, which tells a server the identity of that client. All are PEM
files in one directory; only you can read the keys. Default hosts: those of the present
server certificate, else this machine's name, localhost, 127.0.0.1 and ::1.

If the directory has an authority, it signs. Call lk ca again to renew the server's
certificate; a running server loads it without a restart. Certificates are valid for a
year, the authority for ten. If your company has an authority, use that instead.`,
		Example: `  # a server with TLS, and two clients
  lk ca locks.example.com --client ci --client deploy
  lk serve --listen :7420 --tls-cert lk-ca/server.pem --tls-key lk-ca/server-key.pem --client-ca lk-ca/ca.pem

  # and on another machine, with ca.pem, ci.pem and ci-key.pem copied there
  export LOCKKEEPER_URL='lks://locks.example.com?ca=ca.pem&cert=ci.pem&key=ci-key.pem'`,
		Args: a.checkedAlone(func(_ *cobra.Command, args []string) { o.check(a, args) }),
		RunE: verb(func(*cobra.Command, []string) error { return a.makeCertificates(o) }),
	}
	cmd.Flags().StringVar(&o.folder, "dir", "lk-ca", "`DIR` for the files, created if missing")
	cmd.Flags().StringArrayVar(&o.clients, "client", nil,
		"`NAME` of a client to create a certificate for; may be repeated")
	return cmd
}

// check reads the arguments and collects the problems.
func (o *caOptions) check(a *app, hosts []string) {
	for _, name := range o.clients {
		a.bad.add(access.IdentityName(name))
		if name == "ca" || name == "server" || strings.HasSuffix(name, "-key") {
			a.bad.addf("--client %s: other files have that name: choose another", name)
		}
	}
	for _, host := range hosts {
		if net.ParseIP(host) == nil && (strings.ContainsAny(host, ":/ ") || host == "") {
			a.bad.addf("%q is not a host: write a name such as locks.example.com, or an IP address; no port", host)
		}
	}
	o.hosts = hosts
}

// chooseHosts sets the default hosts if the user named none: had, those of the present server
// certificate, else this machine. It returns the hosts of had that the new certificate lacks.
func (o *caOptions) chooseHosts(had []string) (gone []string) {
	switch {
	case len(o.hosts) > 0:
		return slices.DeleteFunc(had, func(host string) bool { return slices.ContainsFunc(o.hosts, sameHost(host)) })
	case len(had) > 0:
		o.hosts = had
		return nil
	}
	if name, err := os.Hostname(); err == nil {
		o.hosts = append(o.hosts, name)
	}
	for _, here := range []string{"localhost", "127.0.0.1", "::1"} {
		if !slices.Contains(o.hosts, here) {
			o.hosts = append(o.hosts, here)
		}
	}
	return nil
}

// sameHost returns a function that reports whether another text means the same host.
func sameHost(host string) func(string) bool {
	return func(other string) bool {
		ip := net.ParseIP(host)
		return strings.EqualFold(host, other) || ip != nil && ip.Equal(net.ParseIP(other))
	}
}

// makeCertificates is lk ca: it signs the certificates and prints how to use them.
func (a *app) makeCertificates(o *caOptions) error {
	now := time.Now()
	au, err := pki.OpenAuthority(o.folder, now)
	var gone []string
	if err == nil {
		gone = o.chooseHosts(au.ServerHosts())
		err = au.IssueServer(o.hosts, now)
	}
	for _, name := range o.clients {
		if err == nil {
			err = au.IssueClient(name, now)
		}
	}
	if err != nil {
		return &exit{code: exitFailure, say: fmt.Errorf("no certificates: %w", err)}
	}
	verb := "signed by the authority that was there"
	if au.Created() {
		verb = "signed by a new authority"
	}
	fmt.Fprintf(a.stdout, "%s: for a server at %s, %s\n", au.File("server"), strings.Join(o.hosts, ", "), verb)
	if len(gone) > 0 {
		fmt.Fprintf(a.stderr, "lk: the former certificate also named %s: name them again if clients use them\n",
			strings.Join(gone, ", "))
	}
	for _, name := range o.clients {
		fmt.Fprintf(a.stdout, "%s: for the client %s\n", au.File(name), name)
	}
	fmt.Fprintf(a.stderr, "lk: to use it: lk serve --listen :%d --tls-cert %s --tls-key %s", serverPort, au.File("server"),
		au.File("server-key"))
	if len(o.clients) > 0 {
		fmt.Fprintf(a.stderr, " --client-ca %s", au.File("ca"))
	}
	fmt.Fprintf(a.stderr, "\nlk: clients need %s: export %s='%s'\n", au.File("ca"), engineVariable, o.exampleURL(au))
	fmt.Fprintf(a.stderr, "lk: keep %s secret: it can sign a certificate of any identity\n", au.File("ca-key"))
	return nil
}

// exampleURL returns the URL of the server for the first client.
func (o *caOptions) exampleURL(au *pki.Authority) string {
	absolute := func(name string) string {
		if path, err := filepath.Abs(au.File(name)); err == nil {
			return path
		}
		return au.File(name)
	}
	host := o.hosts[0]
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		host = "[" + host + "]"
	}
	url := remote.URL(host, true) + "?ca=" + absolute("ca")
	if len(o.clients) > 0 {
		url += "&cert=" + absolute(o.clients[0]) + "&key=" + absolute(o.clients[0]+"-key")
	} else {
		url += "&token=FILE"
	}
	return url
}
