package remote_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/pki"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
	"github.com/lockkeeper/lockkeeper/internal/testca"
)

// secured starts a TLS server of e for the time of the test, and returns its address. If clients is
// not nil, the server verifies clients' certificates against it.
func secured(t *testing.T, e lockkeeper.Engine, pair testca.Pair, clients *testca.Authority, o server.Options) string {
	t.Helper()
	certificate, err := pki.LoadCertificate(pair.Cert, pair.Key, nil)
	if err != nil {
		t.Fatal(err)
	}
	var authorities *pki.Authorities
	if clients != nil {
		if authorities, err = pki.LoadAuthorities(clients.File, nil); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(e, o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(tls.NewListener(l, pki.ServerTLS(certificate, authorities))) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(s.Shutdown(ctx), <-served, e.Close()); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// Each error of trust between client and server says what is wrong and what to do.
func TestTrustErrorsSayWhatToDo(t *testing.T) {
	ca, other := testca.New(t), testca.New(t)
	hour := time.Now().Add(time.Hour)
	good := secured(t, memlock.New(), ca.Server(), ca, server.Options{})
	expired := secured(t, memlock.New(), ca.Issue("127.0.0.1", time.Now().Add(-time.Hour)), nil, server.Options{})
	elsewhere := secured(t, memlock.New(), ca.Issue("locks.example.org", hour), nil, server.Options{})
	_, plain := serve(t, memlock.New())
	stranger, past := other.Issue("ci", hour), ca.Issue("ci", time.Now().Add(-time.Hour))
	shown := func(p testca.Pair) string { return "&cert=" + p.Cert + "&key=" + p.Key }
	for name, c := range map[string]struct {
		url  string
		want error
		says []string
	}{
		"another authority": {"lks://" + good + "?ca=" + other.File, lockkeeper.ErrUnavailable,
			[]string{"no authority in " + other.File, "an authority of a test", "?ca=FILE"}},
		"the system's authorities": {"lks://" + good, lockkeeper.ErrUnavailable, []string{"this system's list", "?ca=FILE"}},
		"an expired certificate": {"lks://" + expired + "?ca=" + ca.File, lockkeeper.ErrUnavailable,
			[]string{"have the server's renewed", "set the clock"}},
		"another name": {"lks://" + elsewhere + "?ca=" + ca.File, lockkeeper.ErrUnavailable,
			[]string{"for locks.example.org, and not"}},
		"no TLS there": {"lks://" + plain, lockkeeper.ErrUnavailable,
			[]string{"does not speak TLS", "lk://" + plain}},
		"TLS there": {"lk://" + good, lockkeeper.ErrUnsupported, []string{"lks://"}},
		"a client of another": {"lks://" + good + "?ca=" + ca.File + shown(stranger), lockkeeper.ErrDenied,
			[]string{stranger.Cert, "authority that the server does not trust"}},
		"a client that has expired": {"lks://" + good + "?ca=" + ca.File + shown(past), lockkeeper.ErrDenied,
			[]string{past.Cert, "has expired"}},
	} {
		_, err := remote.Open(t.Context(), c.url)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
			continue
		}
		for _, text := range c.says {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q should say %q", name, err, text)
			}
		}
	}
	e, err := remote.Open(t.Context(), "lks://"+good+"?ca="+ca.File+shown(ca.Issue("ci", hour)))
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
}

// A TLS server that is not ours is named in the error.
func TestForeignTLSServerIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			nc.Write([]byte{21, 3, 3, 0, 2, 2, 10}) // an alert: unexpected message
			nc.Close()
		}
	}()
	if _, err := remote.Open(t.Context(), "lk://"+l.Addr().String()); !errors.Is(err, lockkeeper.ErrUnavailable) ||
		!strings.Contains(err.Error(), "write lks://") {
		t.Errorf("%v", err)
	}
}

// A URL with the HTTP port gets an error with the right port.
func TestHTTPPortIsNamed(t *testing.T) {
	quiet := func(s *httptest.Server, start func()) *httptest.Server {
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		start()
		t.Cleanup(s.Close)
		return s
	}
	clear, secure := httptest.NewUnstartedServer(http.NotFoundHandler()), httptest.NewUnstartedServer(
		http.NotFoundHandler())
	quiet(clear, clear.Start)
	quiet(secure, secure.StartTLS)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	at := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	for _, url := range []string{"lk://" + at(clear), "lk://" + at(secure), "lks://" + at(clear),
		"lks://" + at(secure) + "?ca=" + ca} {
		_, err := remote.Open(t.Context(), url)
		if !errors.Is(err, lockkeeper.ErrUnavailable) ||
			!strings.Contains(err.Error(), "that port speaks HTTP: name the other port of the server, mostly 7420") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// An invalid URL, and an invalid file that it names, are found without a connection.
func TestURLsAreCheckedWithoutConnection(t *testing.T) {
	ca := testca.New(t)
	pair := ca.Issue("ci", time.Now().Add(time.Hour))
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "100%&a token")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return strings.NewReplacer("%", "%25", "&", "%26").Replace(name)
	}
	good, empty, two := file("lk_secret\n"), file("\n"), file("lk_one\nlk_two\n")
	for _, c := range []struct{ url, variable, says string }{
		{"lk://host", "", ""},
		{"lks://host,other:1", "", ""},
		{"lks://host?ca=" + ca.File + "&cert=" + pair.Cert + "&key=" + pair.Key + "&token=" + good, "", ""},
		{"lk://127.0.0.1?token=" + good, "", ""},
		{"lk://[::1],localhost", "lk_secret", ""},
		{"lks://host", "lk_secret", ""},
		{"lk://host", "lk_secret", "LOCKKEEPER_TOKEN would cross the network to host:7420"},
		{"lk://localhost,host?token=" + good, "", "would cross the network to host:7420"},
		{"lk://host?ca=" + ca.File, "", "write lks://host:7420?ca="},
		{"lk://host?what=x", "", "?what= is not known"},
		{"lks://host?insecure=1", "", "?insecure= is not known"},
		{"lks://host?token=a&token=b", "", "twice"},
		{"lks://host?token=", "", "names no file"},
		{"lks://host?token=%zz", "", "names no file"},
		{"lks://host?cert=" + pair.Cert, "", "go together"},
		{"lks://host?token=/nowhere/token", "", "/nowhere/token"},
		{"lks://host?token=" + empty, "", "is no token"},
		{"lks://host?token=" + two, "", "is no token"},
		{"lks://host", "lk_sec\tret", "LOCKKEEPER_TOKEN is no token"},
		{"lks://host?ca=/nowhere/ca.pem", "", "/nowhere/ca.pem"},
		{"lks://host?ca=" + pair.Key, "", "has no certificate"},
		{"lks://host?cert=" + pair.Cert + "&key=" + pair.Cert, "", "?cert="},
		{"lks://", "", "write a host"},
		{"lks://host/?ca=x", "", "write a host"},
	} {
		t.Setenv(remote.TokenVariable, c.variable)
		err := remote.Check(c.url)
		switch {
		case c.says == "" && err == nil:
		case c.says == "" || !errors.Is(err, lockkeeper.ErrInvalid) || !strings.Contains(err.Error(), c.says):
			t.Errorf("%s: %v, should say %q", c.url, err, c.says)
		case strings.Contains(err.Error(), "lk_sec"):
			t.Errorf("%s: the error has the secret: %v", c.url, err)
		}
	}
}

// About has what the server knows and what its process adds.
func TestAboutAndDrain(t *testing.T) {
	drained := make(chan string, 1)
	ca := testca.New(t)
	address := secured(t, memlock.New(), ca.Server(), nil, server.Options{
		Name: "lk 1.2", Drain: func(reason string) { drained <- reason },
	})
	e, err := remote.Open(t.Context(), "lks://"+address+"?ca="+ca.File)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	state, err := e.About(t.Context())
	if err != nil || state.Version != "lk 1.2" || state.Connections != 1 || state.Engine != "mem" || state.Uptime <= 0 ||
		state.Already {
		t.Errorf("%+v %v", state, err)
	}
	if state, err = e.Drain(t.Context(), "moving house", "lk 1.2"); err != nil || !state.Already || len(drained) > 0 {
		t.Errorf("the same version: %+v %v", state, err)
	}
	if _, err = e.Drain(t.Context(), strings.Repeat("x", lockkeeper.MaxNoteBytes+1),
		""); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("a long reason: %v", err)
	}
	if state, err = e.Drain(t.Context(), "moving house", "lk 1.3"); err != nil || state.Already ||
		<-drained != "moving house" {
		t.Errorf("another version: %+v %v", state, err)
	}
	_, other := serve(t, memlock.New())
	o, err := remote.Open(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if _, err := o.Drain(t.Context(), "", ""); !errors.Is(err, lockkeeper.ErrUnsupported) {
		t.Errorf("a server without Options.Drain: %v", err)
	}
}

type spanKey struct{}

// spanned records the span in which each call is made.
type spanned struct {
	lockkeeper.Engine
	spans chan any
}

func (e spanned) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	e.spans <- ctx.Value(spanKey{})
	return e.Engine.Claim(ctx, k, w)
}

// The span in which a claim is made crosses the wire.
func TestTraceCrossesTheWire(t *testing.T) {
	spans := spanned{memlock.New(), make(chan any, 10)}
	ca := testca.New(t)
	address := secured(t, spans, ca.Server(), nil, server.Options{
		Trace: func(ctx context.Context, parent string) context.Context {
			return context.WithValue(ctx, spanKey{}, parent)
		},
	})
	e, err := remote.Open(t.Context(), "lks://"+address+"?ca="+ca.File)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	e.Trace(func(ctx context.Context) string { s, _ := ctx.Value(spanKey{}).(string); return s })
	lease, err := e.Attach(t.Context(), lockkeeper.Session{ID: "s", TTL: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ctx := context.WithValue(t.Context(), spanKey{}, parent)
	want := lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{{Path: "a", Mode: lockkeeper.ModeExclusive}}}
	if _, err := e.Claim(ctx, lease.Key, want); err != nil || <-spans.spans != parent {
		t.Errorf("the claim is made in another span: %v", err)
	}
	if _, err := e.Claim(t.Context(), lease.Key, want); err != nil || <-spans.spans != nil {
		t.Errorf("a claim without a span: %v", err)
	}
}
