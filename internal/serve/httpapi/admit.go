package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// check refuses requests before their route is known.
func (a *API) check(r *http.Request) error {
	if len(r.RequestURI) > maxURL {
		return &refusal{problem: problem{
			name: "too-large", Status: http.StatusRequestURITooLong, Title: "the URL is too long",
			Detail: fmt.Sprintf("the URL has %d bytes; at most %d are allowed", len(r.RequestURI), maxURL),
		}}
	}
	// A page of another site in a browser must not act for the user of the browser.
	if a.origin.Check(r) != nil {
		from := "another site"
		if origin := r.Header.Get("Origin"); origin != "" {
			from = quoted(origin)
		}
		return &refusal{problem: problem{
			name: "cross-origin", Status: http.StatusForbidden, Title: "cross-origin request",
			Detail: "the request comes from a page of " + from + " and goes to " + quoted(r.Host) +
				": a page may use only its own server; programs send no Origin",
		}}
	}
	return a.checkHost(r)
}

// checkHost refuses requests for a host name that an attacker may have bound to an address of this
// server (DNS rebinding): a browser then treats the attacker's page as one of this server. Without
// a list of hosts it refuses only if requests need no token. It permits IP addresses.
func (a *API) checkHost(r *http.Request) error {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || len(a.options.Hosts) == 0 && !a.gate.Open() {
		return nil
	}
	here, ok := local.(*net.TCPAddr)
	if !ok {
		return nil
	}
	host, ip := hostOf(r)
	loopback := strings.EqualFold(host, "localhost") || ip.IsLoopback()
	listed := slices.ContainsFunc(a.options.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
	switch {
	case listed, here.IP.IsLoopback() && loopback:
		return nil
	case !here.IP.IsLoopback() && ip.IsValid():
		return nil
	case !here.IP.IsLoopback() && len(a.options.Hosts) == 0 && isOwnName(host):
		return nil
	}
	remedy := "use 127.0.0.1, [::1] or localhost, or require tokens"
	if !here.IP.IsLoopback() {
		remedy = "use its IP address, or start the server with --http-hosts " +
			strings.Join(append(slices.Clone(a.options.Hosts), host), ",")
	}
	return &refusal{problem: problem{
		name: "unknown-host", Status: http.StatusMisdirectedRequest, Title: "unknown host name",
		Detail: "the host " + quoted(r.Host) + " of the request is not a name of this server: " + remedy,
	}}
}

// hostOf returns the host that a request names, without its port, and its IP address if it is one;
// an address with a zone is none.
func hostOf(r *http.Request) (string, netip.Addr) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ".")
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Zone() != "" {
		return host, netip.Addr{}
	}
	return host, ip.Unmap()
}

// isOwnName reports whether a name certainly belongs to this network: the name of this machine, or
// one without a dot, which can't be registered.
func isOwnName(host string) bool {
	own, err := os.Hostname()
	return host != "" && !strings.Contains(host, ".") || err == nil && strings.EqualFold(host, own)
}

// admit authenticates the client that sent c, or returns a 401. A token of its own counts before the
// session of a browser, and that before a certificate.
func (a *API) admit(c *call) (*access.Pass, error) {
	r := c.r
	shown := access.Credentials{From: r.RemoteAddr}
	if lines := r.Header["Authorization"]; len(lines) > 0 {
		scheme, token, _ := strings.Cut(lines[0], " ")
		token = strings.TrimSpace(token)
		bearer := strings.EqualFold(scheme, "Bearer")
		if _, password, ok := r.BasicAuth(); ok { // from Terraform
			token, bearer = password, true
		}
		if len(lines) > 1 || !bearer || token == "" {
			return nil,
				unauthenticated("the Authorization header is neither \"Bearer TOKEN\" nor has it a token as the password",
					`Bearer error="invalid_request"`)
		}
		shown.Token = token
	} else if browser := a.browsers.Of(r); browser != nil {
		if !browser.Permits(r) {
			return nil, errForged()
		}
		c.browser, shown.Token = browser, browser.Token()
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		shown.Certificate = r.TLS.PeerCertificates[0]
	}
	pass, err := a.gate.Admit(shown)
	switch {
	case err == nil:
		return pass, nil
	case problemOf(err).Status != http.StatusForbidden:
		return nil, err // a quota, say
	case shown.Token != "":
		return nil, unauthenticated(problemOf(err).Detail, `Bearer error="invalid_token"`)
	}
	return nil, unauthenticated(problemOf(err).Detail, "Bearer")
}

func unauthenticated(detail, challenge string) error {
	return &refusal{
		problem: problem{
			name: "unauthenticated", Status: http.StatusUnauthorized, Title: "authentication required", Detail: detail,
		},
		header: [2]string{"WWW-Authenticate", challenge},
	}
}
