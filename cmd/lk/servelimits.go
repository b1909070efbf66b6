package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// serveLimits are the bounds of a server that its users may choose.
type serveLimits struct {
	sessionClaims, identityClaims, pathWaiting int
}

// mostClaims is the highest value of each: it is what a server takes in all.
const mostClaims = limits.DefaultClaims

// boundFlags are the flags that bound what clients may do, and by which names they do it.
func (o *serveOptions) boundFlags(f *pflag.FlagSet) {
	l := &o.limits
	f.StringVar(&o.hosts, "http-hosts", "", "`NAMES`, comma-separated, by which HTTP clients may call this server "+
		"(default any where tokens are needed, else addresses, this machine's name and names without a dot)")
	f.IntVar(&l.sessionClaims, "session-claims", limits.DefaultSessionClaims, "the most claims, `N`, of one session")
	f.IntVar(&l.identityClaims, "identity-claims", limits.DefaultIdentityClaims,
		"the most claims, `N`, of one identity to which no quota gives another number")
	f.IntVar(&l.pathWaiting, "path-waiting", limits.DefaultWaitingPerPath, "the most claims, `N`, that wait for one path")
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

// bounds are those of the server.
func (l *serveLimits) bounds() *limits.Bounds {
	b := limits.DefaultBounds()
	b.SessionClaims, b.WaitingPerPath = l.sessionClaims, l.pathWaiting
	b.Each[limits.Claims] = l.identityClaims
	return &b
}

// otherFiles is how many files a server has open beside its connections, at most.
const otherFiles = 256

// openFiles says what is wrong if the system lets this process have fewer files open than its
// connections may need; "" if all is well. The Go runtime has raised the soft limit to the hard
// one.
func (l *serveLimits) openFiles(web bool) string {
	need := limits.DefaultConnections + limits.MostArrivals + otherFiles
	if web {
		need += limits.DefaultConnections + limits.MostHTTPArrivals
	}
	have, known := openFilesLimit()
	if !known || have >= uint64(need) {
		return ""
	}
	return fmt.Sprintf("this process may have %d files open, and its connections may need %d: with more of them no new ones are taken; "+
		"raise the hard limit (LimitNOFILE= of systemd, ulimit -Hn of a shell)", have, need)
}
