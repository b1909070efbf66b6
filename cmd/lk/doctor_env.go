package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/remote"
)

// variables looks for environment variables that are meant for lockkeeper but that no program
// reads.
func (d *doctor) variables() {
	known := knownVariables()
	like := &cobra.Command{SuggestionsMinimumDistance: 2} // it finds similar names
	for _, name := range known {
		like.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	unknown := 0
	for _, line := range os.Environ() {
		variable, _, _ := strings.Cut(line, "=")
		if slices.Contains(known, variable) || len(variable) < len(engineVariable)-2 {
			continue
		}
		meant := like.SuggestionsFor(variable)
		if !strings.HasPrefix(variable, "LOCKKEEPER_") && len(meant) == 0 {
			continue
		}
		unknown++
		remedy := "unset it; there are " + strings.Join(engineVariables(), ", ") + ", and " + serveVariables +
			" with a flag of lk serve"
		if len(meant) > 0 {
			remedy = "did you mean " + strings.Join(meant, ", or ") + "? Else unset it"
		}
		d.wrong(lockkeeper.Doubtful, "environment", variable+" is set, and nothing reads it", remedy)
	}
	if unknown == 0 {
		d.fine("environment", "no unknown LOCKKEEPER_* variables")
	}
}

// engineVariables returns the variable that chooses an engine, and those that engines read.
func engineVariables() []string {
	all := []string{engineVariable}
	for _, s := range lockkeeper.Schemes() {
		for _, name := range s.Variables {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// knownVariables returns the environment variables that lk reads. It builds the flags on another
// app, because building them resets an app's values to their defaults.
func knownVariables() []string {
	known := engineVariables()
	serve, _, err := (&app{stdout: io.Discard, stderr: io.Discard}).newRoot("serve").Find([]string{"serve"})
	if err != nil {
		return known
	}
	add := func(f *pflag.Flag) {
		known = append(known, serveVariables+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")))
	}
	serve.Flags().VisitAll(add)
	serve.InheritedFlags().VisitAll(add)
	return known
}

// examineURL runs the checks of the URL that need no open engine.
func (d *doctor) examineURL(url string) {
	if examine := schemeOf(url).Examine; examine != nil {
		d.list = append(d.list, examine(url)...)
	}
}

// nameRemedy returns the remedy for a URL that names another server, or another authority, than the one that is
// meant; "" if that is not what is wrong.
func nameRemedy(err error) string {
	var unknown x509.UnknownAuthorityError
	var other x509.HostnameError
	var lookup *net.DNSError
	switch {
	case errors.As(err, &unknown):
		return "name by ?ca=FILE the file of the authority that has signed the certificate of this server; lk ca has made " +
			"it beside the certificate, as lk-ca/ca.pem"
	case errors.As(err, &other):
		return "write a name of its certificate in the URL, or have a certificate made for this one: lk ca NAME"
	case errors.As(err, &lookup) && lookup.IsNotFound:
		return "correct the host name in the URL, or make this machine know it"
	}
	return ""
}

// isUnnamed reports whether a server has refused an identity because no rule names it.
func isUnnamed(err error) bool {
	return errors.Is(err, lockkeeper.ErrDenied) && strings.Contains(err.Error(), "no rule allows it anything")
}

// serverRemedy returns the remedy for a server that can't be used.
func serverRemedy(err error) string {
	text := err.Error()
	if remedy := nameRemedy(err); remedy != "" {
		return remedy
	}
	switch {
	case strings.Contains(text, "speaks HTTP"):
		return fmt.Sprintf("name the port of the server's --listen, mostly %d, and not that of its --http", serverPort)
	case strings.Contains(text, "speaks TLS"):
		return "write lks:// in place of lk://, and name the file of its authority by ?ca=FILE"
	case strings.Contains(text, "does not speak TLS"):
		return "write lk:// in place of lks://, if you trust the network between"
	case !errors.Is(err, lockkeeper.ErrDenied):
		return "see that it runs (lk serve starts a server) and can be reached from here, or name another engine"
	case isUnnamed(err):
		return "ask the operator of that server to name this identity in a rule of its configuration, or of the policy of " +
			"its cluster: who, may and paths"
	case strings.Contains(text, "shown the token"), strings.Contains(text, "the credentials of"):
		return "get a valid token from the operator of that server (lk token new NAME makes one, lk token ls lists " +
			"them), and " +
			"put it where this one comes from"
	case strings.Contains(text, "shown the certificate"), strings.Contains(text, "does not accept the certificate"):
		return "get a valid certificate from the operator of that server, as by lk ca --client NAME, and name it by " +
			"?cert=FILE&key=FILE"
	}
	return "show who you are: by ?token=FILE in the URL, " + remote.TokenVariable + " or " + remote.TokenFileVariable +
		"; or by ?cert=FILE&key=FILE"
}
