package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/lockkeeper/lockkeeper/access"
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
	if err := a.origin.Check(r); err != nil {
		return &refusal{problem: problem{
			name: "cross-origin", Status: http.StatusForbidden, Title: "a page of another origin may not do that",
			Detail: "the request comes from a page of " + quoted(r.Header.Get("Origin")) + ", and this is " + quoted(r.Host) + ": " + err.Error(),
		}}
	}
	return a.checkHost(r)
}

// checkHost refuses a name that a stranger's page has bound to this computer's own
// address (DNS rebinding). It matters only where who reaches the server may do
// everything: no page has another's token.
func (a *API) checkHost(r *http.Request) error {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || !a.gate.Open() {
		return nil
	}
	here, ok := local.(*net.TCPAddr)
	if !ok || !here.IP.IsLoopback() || isLoopback(r.Host) {
		return nil
	}
	return &refusal{problem: problem{
		name: "cross-origin", Status: http.StatusForbidden, Title: "this server is not known by that name",
		Detail: "the request names the host " + quoted(r.Host) + ", and came to a loopback address that everybody may use: name it 127.0.0.1, [::1] or localhost, or have the server ask for tokens",
	}}
}

// isLoopback reports whether a Host header names this computer to itself.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ".")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
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
			return nil, unauthenticated("the Authorization header is not of the form: Bearer TOKEN, nor does it have the token as a password", `Bearer error="invalid_request"`)
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
		problem: problem{name: "unauthenticated", Status: http.StatusUnauthorized, Title: "who are you?", Detail: detail},
		header:  [2]string{"WWW-Authenticate", challenge},
	}
}
