package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/disklock"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// serveOptions are the arguments of lk serve.
type serveOptions struct {
	config    string
	listen    string
	http      string
	data      string
	tlsCert   string
	tlsKey    string
	clientCA  string
	tokens    string
	audit     string
	insecure  bool
	hosts     string
	limits    serveLimits
	logFormat string
	logLevel  string
	join      string // the file of a token
	nodeFlags

	joins     bool              // join the cluster of a token, if the folder has not joined before
	node      quorumlock.Config // of the node of a cluster, by nodeFlags
	engine    string            // URL of the served engine
	hostNames []string          // parsed --http-hosts
	file      *configFile       // parsed --config; nil without it
}

func (a *app) newServe() *cobra.Command {
	o := &serveOptions{logLevel: "info"}
	cmd := &cobra.Command{
		Use:        "serve",
		SuggestFor: []string{"server", "daemon", "start", "listen"},
		Short:      "Serve locks to other machines",
		Long: `Serve locks to lk, to Go programs and over HTTP. Without flags, the server keeps the locks on
disk, in $XDG_STATE_HOME/lockkeeper/server (or ~/.local/state/lockkeeper/server), and
listens on this machine only: on port 7420 for clients, on port 7421 for HTTP, with metrics
at /metrics. When it is ready, it prints how to use it, such as
export LOCKKEEPER_URL=lk://127.0.0.1:7420

If a holder is killed or cut off, its lock ends with its TTL: a server can't tell a dead
process from a slow one. A restarted server finds its locks on disk; holders that reconnect
within their TTL keep them.

--data or --engine names the engine to serve. LOCKKEEPER_URL does not, since it names the
engine of clients. If --data names the folder of a node of a cluster, the server runs that
node. With --join, it first makes the folder, and joins the cluster of the token in FILE;
the same command runs the node from then on (lk help cluster).

To listen on a network, require clients to authenticate, by tokens (--tokens, lk token) or
certificates (--client-ca), over TLS (--tls-cert, --tls-key; lk ca creates certificates for
a first try), or give --insecure. Rules and quotas in the configuration file bound what an
identity may do; without rules, an authenticated client may do everything. The server
applies changes of tokens, rules and certificates within seconds, and at once on HUP.

Each flag can also be set in that file, as a key with _ for -, or in the environment, as
` + serveVariables + ` and its name: tls_cert, ` + serveVariables + `TLS_CERT. A flag
overrides the environment, which overrides the file. Unknown keys are refused.

TERM and Ctrl-C end the server: it grants nothing more, keeps positions in line, notifies its
clients, answers pending calls, and ends within ` + duration.Text(drainTime) + `; a second
signal ends it at once. lk drain ends it when it is idle. It supports systemd's Type=notify.`,
		Example: `  # on this machine
  lk serve

  # on a network, with new certificates and a token
  lk ca locks.example.com
  lk token new ci --tokens tokens >ci-token
  lk serve --listen :7420 --http :7421 --tls-cert lk-ca/server.pem --tls-key lk-ca/server-key.pem --tokens tokens

  # for one test run: in memory, on any free port
  lk serve --engine mem: --listen 127.0.0.1:0

  # and in another shell
  export LOCKKEEPER_URL=lk://127.0.0.1:7420
  lk run mydatabase/mytest -- go test ./...`,
		Args: a.checkedAlone(func(cmd *cobra.Command, args []string) { o.check(a, cmd, args) }),
		RunE: verb(func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), o) }),
	}
	o.flags(a, cmd.Flags())
	return cmd
}

func (o *serveOptions) flags(a *app, f *pflag.FlagSet) {
	f.StringVar(&o.config, "config", "", "`FILE` (YAML) with values of these flags, rules and quotas")
	f.StringVar(&o.listen, "listen", "", "`ADDR` to listen on, as HOST:PORT; port 0 is any free port (default "+
		"127.0.0.1:7420 and [::1]:7420)")
	f.StringVar(&o.http, "http", "", "`ADDR` to listen on for HTTP, or off (default 127.0.0.1:7421 and [::1]:7421; off "+
		"if --listen is given)")
	f.StringVar(&a.engineFlag, "engine", "", "`URL` of the engine to serve (default: that of --data)")
	f.StringVar(&o.data, "data", "", "`DIR` to keep the locks in, created if missing: the same as --engine disk:DIR, or "+
		"--engine cluster:DIR if it has a node")
	f.StringVar(&o.join, "join", "", "`FILE` with a token (lk cluster token), by which DIR becomes a node of its cluster "+
		"(default: the token in $"+quorumlock.TokenVariable+", if it is set)")
	o.nodeFlags.add(f, "a new node")
	f.StringVar(&o.tlsCert, "tls-cert", "",
		"`FILE` (PEM) with the certificate chain of this server")
	f.StringVar(&o.tlsKey, "tls-key", "", "`FILE` (PEM) with its key")
	f.StringVar(&o.clientCA, "client-ca", "",
		"`FILE` (PEM) with the authority that signs clients' certificates; clients authenticate by them")
	f.StringVar(&o.tokens, "tokens", "", "`FILE` with the tokens by which clients authenticate (lk token)")
	f.StringVar(&o.audit, "audit", "", "`FILE` of the audit log: a line for each grant, loss, revocation and refusal")
	f.BoolVar(&o.insecure, "insecure", false,
		"listen on a network without authentication: anybody who reaches the port can take and end locks")
	o.boundFlags(f)
	f.Var(choice[string]{&o.logFormat, &a.bad, "--log-format", []string{"text", "json"}}, "log-format",
		"how to write the log, on stderr (default text on a terminal, else json)")
	f.Var(choice[string]{&o.logLevel, &a.bad, "--log-level", []string{"debug", "info", "warn", "error"}}, "log-level",
		"minimum level to log")
}

// check reads the arguments and collects the problems.
func (o *serveOptions) check(a *app, cmd *cobra.Command, args []string) {
	if len(args) > 0 {
		a.bad.addf("%s: lk serve takes none; what to serve is named by --data or --engine", plural(len(args), "argument"))
	}
	o.applyConfig(a, cmd)
	o.checkEngine(a, cmd)
	o.checkSecurity(a)
	o.limits.check(a)
	o.checkHosts(a)
	for _, on := range []endpoint{o.onWire(), o.onHTTP()} {
		if on.text != "" && on.text != httpOff {
			_, err := on.parse()
			a.bad.add(err)
		}
	}
}

// checkEngine chooses the engine to serve.
func (o *serveOptions) checkEngine(a *app, cmd *cobra.Command) {
	_, given := os.LookupEnv(quorumlock.TokenVariable)
	o.joins = given || o.join != ""
	o.engine = a.engineFlag
	switch given := cmd.Flags().Changed; {
	case given("data") && o.engine != "":
		a.bad.addf("--data and --engine exclude each other: --data %s is --engine %s", o.data, o.folderURL(o.data))
		return
	case given("data") && o.data == "":
		a.bad.addf("--data is empty: name a directory")
		return
	case given("data"):
		o.engine = o.folderURL(o.data)
	case o.engine == "":
		folder, err := o.defaultFolder()
		if err != nil {
			a.bad.add(err)
			return
		}
		o.engine = o.folderURL(folder)
	}
	if schemeOf(o.engine).Server {
		a.bad.addf("--engine %s is a server already: clients can connect to it directly",
			lockkeeper.RedactURL(o.engine))
		return
	}
	url, err := absoluteURL(o.engine)
	if err == nil {
		err = lockkeeper.CheckURL(url)
	}
	o.engine = url
	a.bad.add(err)
	o.checkNode(a, cmd)
}

// defaultFolder returns the folder of the locks of a user who names none: that of the user's node, if
// there is one.
func (o *serveOptions) defaultFolder() (string, error) {
	node, err := defaultNodeFolder()
	if err != nil || o.joins || quorumlock.HasNode(node) {
		return node, err
	}
	folder, err := stateFolder()
	return filepath.Join(folder, "server"), err
}

// folderURL returns the URL of the engine that keeps its locks in the folder.
func (o *serveOptions) folderURL(folder string) string {
	if o.joins || quorumlock.HasNode(folder) {
		return quorumlock.URL(folder)
	}
	return disklock.URL(folder)
}

// checkNode reads the flags about a node.
func (o *serveOptions) checkNode(a *app, cmd *cobra.Command) {
	o.node = o.nodeFlags.config(a)
	if quorumlock.FolderOf(o.engine) != "" || o.engine == "" {
		return
	}
	for _, flag := range []string{"join", "name", "peers", "advertise", "rank"} {
		if cmd.Flags().Changed(flag) {
			a.bad.addf("--%s is about a node of a cluster, and %s is none: lk cluster init makes the first node, --join FILE "+
				"another one", flag, lockkeeper.RedactURL(o.engine))
		}
	}
}

// checkSecurity collects flags about security that contradict each other.
func (o *serveOptions) checkSecurity(a *app) {
	if (o.tlsCert == "") != (o.tlsKey == "") {
		a.bad.addf("--tls-cert and --tls-key go together: a certificate is of no use without its key")
	}
	if o.clientCA != "" && o.tlsCert == "" {
		a.bad.addf("--client-ca needs --tls-cert and --tls-key: clients show certificates over TLS")
	}
	if !o.knowsClients() && o.file != nil && (len(o.file.Rules)+len(o.file.Quotas) > 0) {
		a.bad.addf("%s: rules and quotas need --tokens or --client-ca: without them clients have no identity", o.config)
	}
}

// knowsClients reports whether clients must authenticate.
func (o *serveOptions) knowsClients() bool { return o.tokens != "" || o.clientCA != "" }

// beyond reports whether other machines may reach the server: only if clients must authenticate,
// over TLS, or with --insecure.
func (o *serveOptions) beyond() bool { return o.insecure || o.knowsClients() && o.tlsCert != "" }

// checkHosts parses --http-hosts, the names by which HTTP clients may reach this server.
func (o *serveOptions) checkHosts(a *app) {
	if o.hosts == "" {
		return
	}
	for name := range strings.SplitSeq(o.hosts, ",") {
		name = strings.Trim(strings.TrimSuffix(strings.TrimSpace(name), "."), "[]")
		if name == "" || strings.ContainsAny(name, "/:*? ") && net.ParseIP(name) == nil {
			a.bad.addf("--http-hosts %q: write names without scheme and port, such as locks.example.com,locks", o.hosts)
			return
		}
		o.hostNames = append(o.hostNames, name)
	}
}

// httpOff is the value of --http that turns HTTP off.
const httpOff = "off"

func (o *serveOptions) onWire() endpoint {
	return endpoint{flag: "--listen", text: o.listen, port: serverPort, beyond: o.beyond()}
}

// onHTTP returns the endpoint of HTTP. With --listen and without --http it is off, so that the
// second server of a machine does not want the default port of the first.
func (o *serveOptions) onHTTP() endpoint {
	on := endpoint{flag: "--http", text: o.http, port: httpPort, beyond: o.beyond()}
	if o.http == "" && o.listen != "" {
		on.text = httpOff
	}
	return on
}

// logger returns a logger to stderr in the format of --log-format; the default is text for a
// terminal, else JSON.
func (o *serveOptions) logger(a *app) *slog.Logger {
	if o.logFormat == "" {
		o.logFormat = "json"
		if file, ok := a.stderr.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
			o.logFormat = "text"
		}
	}
	var level slog.Level
	_ = level.UnmarshalText([]byte(o.logLevel)) // the flag accepts no others
	options := &slog.HandlerOptions{Level: level}
	if o.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(a.stderr, options))
	}
	return slog.New(slog.NewTextHandler(a.stderr, options))
}

// sayReady reports to the log, stderr and systemd that the server is ready, and how to use it.
func (a *app) sayReady(s *service, listeners, pages []net.Listener) {
	o, g := s.options, s.engine.Guarantees()
	web := "http://"
	if s.tls != nil {
		web = "https://"
	}
	use := remote.URL(s.usable(listeners[0]), s.tls != nil)
	ready := fmt.Sprintf("serves %s on %s", lockkeeper.RedactURL(o.engine), strings.Join(addresses(listeners), " and "))
	fields := []any{"engine", lockkeeper.RedactURL(o.engine), "listen", addresses(listeners), "url", use}
	if len(pages) > 0 {
		at := web + s.usable(pages[0])
		ready += ", HTTP on " + at
		fields = append(fields, "http", at)
	}
	ready += fmt.Sprintf("; to use it: export %s=%s", engineVariable, o.withFiles(use))
	var notes []string
	if g.Reach == lockkeeper.InProcess && g.Survives == lockkeeper.SurvivesNothing {
		notes = append(notes, "the locks are in this process alone, and end with it")
	}
	if o.insecure && !o.knowsClients() {
		notes = append(notes, "anyone who reaches this port can take and end locks (--insecure)")
	} else if o.insecure && s.tls == nil {
		notes = append(notes, "tokens and locks cross the network in the clear (--insecure)")
	}
	if note := o.limits.openFiles(len(pages) > 0); note != "" {
		notes = append(notes, note)
	}
	if named := os.Getenv(engineVariable); named != "" && a.engineFlag == "" && o.data == "" && !schemeOf(named).Server {
		notes = append(notes, fmt.Sprintf("%s=%s is not what is served: --engine %s would be", engineVariable,
			lockkeeper.RedactURL(named), lockkeeper.RedactURL(named)))
	}
	if o.logFormat == "json" {
		for _, note := range notes {
			s.log.Warn(note)
		}
		s.log.Info(ready, fields...)
	} else {
		for _, note := range notes {
			fmt.Fprintf(a.stderr, "lk: %s\n", note)
		}
		fmt.Fprintf(a.stderr, "lk: %s\n", ready)
	}
	notifySystemd("READY=1\nSTATUS=lk "+ready, s.log)
}

// usable returns the address of a listener for clients.
func (s *service) usable(l net.Listener) string {
	if s.tls != nil {
		if pair, err := s.tls.GetCertificate(new(tls.ClientHelloInfo)); err == nil {
			return certifiedAddress(l.Addr(), pair.Leaf)
		}
	}
	return usableAddress(l.Addr())
}

// withFiles returns the URL for a shell, with placeholders for the files that clients need.
func (o *serveOptions) withFiles(url string) string {
	var files []string
	if o.tlsCert != "" {
		files = append(files, "ca=FILE")
	}
	if o.tokens != "" {
		files = append(files, "token=FILE")
	} else if o.clientCA != "" {
		files = append(files, "cert=FILE", "key=FILE")
	}
	if len(files) == 0 {
		return url
	}
	return "'" + url + "?" + strings.Join(files, "&") + "'"
}

// addresses returns the addresses of listeners as HOST:PORT.
func addresses(listeners []net.Listener) []string {
	list := make([]string, len(listeners))
	for i, l := range listeners {
		list[i] = l.Addr().String()
	}
	return list
}
