package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/access"
)

// Bounds of what stays open: in all, and of one identity.
const (
	mostConnections = 16_384
	mostPolls       = 4096
	mostPollsEach   = 1024
	mostStreams     = 1024
	mostStreamsEach = 16
	mostLists       = 64 // of many claims, each of which is a copy
	mostListsEach   = 8
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

// A doorman bounds the connections of one server, so that who opens them without end
// takes neither its memory nor the files that others of the process need. Who comes when
// it is full is sent away. It is safe for concurrent use.
type doorman struct {
	most int64
	in   atomic.Int64
}

// state is http.Server.ConnState.
func (d *doorman) state(c net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		if d.in.Add(1) > d.most {
			c.Close() // the server finds that out, and says that it is closed
		}
	case http.StateClosed, http.StateHijacked:
		d.in.Add(-1)
	}
}

// A turnstile bounds how many of something are open, in all and of each identity.
// It is safe for concurrent use.
type turnstile struct {
	most, each int
	what       string
	mu         sync.Mutex // guards all below
	in         int
	of         map[string]int
}

func newTurnstile(most, each int, what string) *turnstile {
	return &turnstile{most: most, each: each, what: what, of: make(map[string]int)}
}

// enter lets one more in, or refuses with a quota. Each that is in calls leave,
// once. Where everybody may do everything there is one name, which is nobody's, so
// only the sum is bounded.
func (t *turnstile) enter(name string) (leave func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.in == t.most:
		return nil, quota("%d %s are open: at most that many are allowed in all", t.in, t.what)
	case name != "" && t.of[name] == t.each:
		return nil, quota("%s has %d %s open: at most that many are allowed", name, t.each, t.what)
	}
	t.in++
	t.of[name]++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.in--
		if t.of[name]--; t.of[name] == 0 {
			delete(t.of, name)
		}
	}, nil
}

func quota(format string, args ...any) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrDenied, Reason: lockkeeper.Quota, Detail: fmt.Sprintf(format, args...)}
}
