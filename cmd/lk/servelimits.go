package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// serveLimits are the bounds of a server that flags set.
type serveLimits struct {
	sessionClaims, identityClaims, pathWaiting int
}

// mostClaims is the highest value of each: the bound of all claims of a server.
const mostClaims = limits.DefaultClaims

// boundFlags adds the flags that bound claims, and --http-hosts.
func (o *serveOptions) boundFlags(f *pflag.FlagSet) {
	l := &o.limits
	f.StringVar(&o.hosts, "http-hosts", "", "`NAMES`, comma-separated, that HTTP requests may have as Host "+
		"(default: any if clients authenticate, else addresses, this machine's name and names without a dot)")
	f.IntVar(&l.sessionClaims, "session-claims", limits.DefaultSessionClaims, "at most `N` claims of one session")
	f.IntVar(&l.identityClaims, "identity-claims", limits.DefaultIdentityClaims,
		"at most `N` claims of one identity without a quota of its own")
	f.IntVar(&l.pathWaiting, "path-waiting", limits.DefaultWaitingPerPath, "at most `N` claims wait for one path")
}

func (l *serveLimits) check(a *app) {
	for _, bound := range []struct {
		flag string
		n    int
	}{{"--session-claims", l.sessionClaims}, {"--identity-claims", l.identityClaims}, {"--path-waiting", l.pathWaiting}} {
		if bound.n < 1 || bound.n > mostClaims {
			a.bad.addf("%s %d is out of range: 1 to %d", bound.flag, bound.n, mostClaims)
		}
	}
}

// bounds returns the limits as the gate takes them.
func (l *serveLimits) bounds() *limits.Bounds {
	b := limits.DefaultBounds()
	b.SessionClaims, b.WaitingPerPath = l.sessionClaims, l.pathWaiting
	b.Each[limits.Claims] = l.identityClaims
	return &b
}

// otherFiles bounds the open files of a server other than its connections.
const otherFiles = 256

// openFiles returns a warning if the system allows fewer open files than the connections may
// need, else "". The Go runtime has raised the soft limit to the hard limit.
func (l *serveLimits) openFiles(web bool) string {
	need := limits.DefaultConnections + limits.MostArrivals + otherFiles
	if web {
		need += limits.DefaultConnections + limits.MostHTTPArrivals
	}
	have, known := openFilesLimit()
	if !known || have >= uint64(need) {
		return ""
	}
	return fmt.Sprintf("this process may open %d files, but its connections may need %d: at the limit it accepts no "+
		"new connections; "+
		"raise the hard limit (LimitNOFILE= of systemd, ulimit -Hn of a shell)", have, need)
}
