package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// check refuses what no route is asked about.
func (a *API) check(r *http.Request) error {
	if len(r.RequestURI) > mostURL {
		return &refusal{problem: problem{
			name: "too-large", Status: http.StatusRequestURITooLong, Title: "the URL is too long",
			Detail: fmt.Sprintf("the URL has %d bytes: at most %d are allowed", len(r.RequestURI), mostURL),
		}}
	}
	// A page of somebody else that a browser shows must not act for its user here.
	if a.origin.Check(r) != nil {
		from := "another site"
		if origin := r.Header.Get("Origin"); origin != "" {
			from = quoted(origin)
		}
		return &refusal{problem: problem{
			name: "cross-origin", Status: http.StatusForbidden, Title: "a page of another origin may not do that",
			Detail: "the request comes from a page of " + from + ", and this is " + quoted(r.Host) +
				": a page may only use the server that it came from; a program sends no Origin",
		}}
	}
	return a.checkHost(r)
}

// checkHost refuses requests for a host name that a foreign page may have bound to an address of
// this server (DNS rebinding): a browser takes such a page for the server's own. Without a list
// of hosts it refuses only if requests need no token. It permits IP addresses, which can't be bound.
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
	loopback := strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
	listed := slices.ContainsFunc(a.options.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
	switch {
	case listed, here.IP.IsLoopback() && loopback:
		return nil
	case !here.IP.IsLoopback() && ip != nil:
		return nil
	case !here.IP.IsLoopback() && len(a.options.Hosts) == 0 && isOwnName(host):
		return nil
	}
	remedy := "name it 127.0.0.1, [::1] or localhost, or have the server ask for tokens"
	if !here.IP.IsLoopback() {
		remedy = "name its IP address, or start it with --http-hosts " +
			strings.Join(append(slices.Clone(a.options.Hosts), host), ",")
	}
	return &refusal{problem: problem{
		name: "unknown-host", Status: http.StatusMisdirectedRequest, Title: "this server is not known by that name",
		Detail: "the request names the host " + quoted(r.Host) + ", which is not one of this server's: " + remedy,
	}}
}

// hostOf returns the host that a request names, without its port, and its IP address if it is one.
func hostOf(r *http.Request) (string, net.IP) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ".")
	return host, net.ParseIP(host)
}

// isOwnName reports whether a name certainly belongs to this network: the name of this machine, or
// one without a dot, which can't be registered.
func isOwnName(host string) bool {
	own, err := os.Hostname()
	return host != "" && !strings.Contains(host, ".") || err == nil && strings.EqualFold(host, own)
}

// admit lets in who sends r, or refuses with a 401.
func (a *API) admit(r *http.Request) (*access.Pass, error) {
	shown := access.Credentials{From: r.RemoteAddr}
	if lines := r.Header.Values("Authorization"); len(lines) > 0 {
		scheme, token, _ := strings.Cut(lines[0], " ")
		token = strings.TrimSpace(token)
		bearer := strings.EqualFold(scheme, "Bearer")
		if _, password, ok := r.BasicAuth(); ok { // what Terraform can send
			token, bearer = password, true
		}
		if len(lines) > 1 || !bearer || token == "" {
			return nil, unauthenticated("the Authorization header is not of the form: Bearer TOKEN, nor does it have the "+
				"token as a password", `Bearer error="invalid_request"`)
		}
		shown.Token = token
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		shown.Certificate = r.TLS.PeerCertificates[0]
	}
	pass, err := a.gate.Admit(shown)
	switch {
	case err == nil:
		return pass, nil
	case problemOf(err).Status != http.StatusForbidden:
		return nil, err // such as a quota
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
