package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/pki"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
	"github.com/lockkeeper/lockkeeper/internal/testca"
)

// startTLS serves e by TLS until the test ends. It returns what clients trust.
func startTLS(t *testing.T, e lockkeeper.Engine, o Options) (string, *tls.Config) {
	t.Helper()
	ca := testca.New(t)
	pair := ca.Server()
	c, err := pki.LoadCertificate(pair.Cert, pair.Key, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(e, o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(tls.NewListener(l, pki.ServerTLS(c, nil))) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(s.Shutdown(ctx), <-served); err != nil {
			t.Error(err)
		}
	})
	text, err := os.ReadFile(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	trust := &tls.Config{ServerName: "127.0.0.1", RootCAs: x509.NewCertPool()}
	trust.RootCAs.AppendCertsFromPEM(text)
	return l.Addr().String(), trust
}

func startSecure(t *testing.T) (string, *tls.Config) {
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	return startTLS(t, e, Options{})
}

// secured returns the peer with TLS.
func secured(p *peer, trust *tls.Config) *peer {
	secure := tls.Client(p.net, trust)
	p.net, p.in = secure, bufio.NewReader(secure)
	return p
}

// welcome performs the handshake, and fails the test unless the server welcomes the peer.
func (p *peer) welcome() *peer {
	p.t.Helper()
	p.send(&wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol}})
	if f, err := p.frame(); err != nil || f.GetWelcome() == nil {
		p.t.Fatalf("no welcome: %v %v", f, err)
	}
	return p
}

// A client with TLS where there is none, or without it where there is, gets the right scheme in the
// refusal.
func TestOneSideSpeaksTLS(t *testing.T) {
	secure, trust := startSecure(t)
	_, plain := startMemory(t)
	p := connect(t, secure)
	p.send(&wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol, Token: "lk_secret"}})
	if p.over(lockkeeper.ErrUnsupported); !strings.Contains(p.refused.Error(), "lks://") {
		t.Errorf("without TLS: %v", p.refused)
	}
	p = connect(t, plain)
	// how a ClientHello begins
	if _, err := p.net.Write([]byte("\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03")); err != nil {
		t.Fatal(err)
	}
	if p.over(lockkeeper.ErrUnsupported); !strings.Contains(p.refused.Error(), "begins with lk://") {
		t.Errorf("with TLS: %v", p.refused)
	}
	err := tls.Client(connect(t, plain).net, trust).Handshake()
	if _, ok := errors.AsType[tls.RecordHeaderError](err); !ok {
		t.Errorf("a TLS client gets %v", err)
	}
}

// TestHTTPAtTheWrongPort: an HTTP client gets an HTTP response that explains the port, with TLS and
// without.
func TestHTTPAtTheWrongPort(t *testing.T) {
	secure, trust := startSecure(t)
	_, plain := startMemory(t)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust}, Timeout: patience}
	defer client.CloseIdleConnections()
	for _, url := range []string{"http://" + plain, "https://" + secure, "http://" + secure} {
		for _, method := range []string{"GET", "POST", "DELETE", "LOCK"} {
			r, err := http.NewRequestWithContext(t.Context(), method, url+"/v1/grab/x?as=me", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := client.Do(r)
			if err != nil {
				t.Errorf("%s %s: %v", method, url, err)
				continue
			}
			text, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "lk://") || err != nil {
				t.Errorf("%s %s: %d %s, %v", method, url, answer.StatusCode, text, err)
			}
		}
	}
	secured(connect(t, secure), trust).welcome() // and others are served
}

// drip writes one byte at a time.
type drip struct{ net.Conn }

func (d drip) Write(b []byte) (int, error) {
	for i := range b {
		if _, err := d.Conn.Write(b[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

// Handshake, first frame and requests may arrive byte by byte.
func TestBytesArriveOneByOne(t *testing.T) {
	secure, trust := startSecure(t)
	p := connect(t, secure)
	p.net.(*net.TCPConn).SetNoDelay(true)
	p.net = drip{p.net}
	p = secured(p, trust).welcome()
	p.held("me", p.attach("me"), 1, "a")
}

// Clients that do not finish the handshake have a bounded number of connections, and lose them when
// other clients need one. Welcomed clients are not harmed.
func TestUnauthenticatedConnectionsAreBounded(t *testing.T) {
	secure, trust := startSecure(t)
	friend := secured(connect(t, secure), trust).welcome()
	epoch := friend.attach("friend")
	idle := make([]net.Conn, limits.MostArrivals+50)
	for i := range idle {
		idle[i] = connect(t, secure).net
		if i%2 == 0 {
			if _, err := idle[i].Write([]byte{22, 3, 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	friend.held("friend", epoch, 1, "a")
	began := time.Now()
	other := secured(connect(t, secure), trust).welcome() // it arrives after all idle ones
	if waited := time.Since(began); waited > handshakeTime/2 {
		t.Errorf("a client was welcomed after %s", waited)
	}
	other.held("other", other.attach("other"), 1, "b")
	// The server has closed the oldest ones. The latest may stay until their handshake times out.
	if _, err := idle[0].Read(make([]byte, 1)); err == nil || time.Since(began) > handshakeTime/2 {
		t.Errorf("the oldest idle connection is still open: %v", err)
	}
	friend.release("friend", epoch, 1)
}

// A refused client may send for a moment longer, so that it can read the refusal: some systems discard
// received bytes once sending fails.
func TestRefusalCanBeRead(t *testing.T) {
	_, address := startMemory(t)
	p := connect(t, address)
	p.send(&wire.ClientFrame{Hello: &wire.Hello{Protocol: 99}})
	p.over(lockkeeper.ErrUnsupported)
	for range 3 {
		if _, err := p.net.Write(make([]byte, 1000)); err != nil {
			t.Error(err)
		}
	}
}

// A server that ends does not wait for unfinished handshakes.
func TestShutdownDoesNotWaitForHandshakes(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	s, address := start(t, e, Options{})
	friend := greeted(t, address)
	for range limits.MostArrivals + 10 {
		connect(t, address)
	}
	began := time.Now()
	if err := s.Shutdown(t.Context()); err != nil || time.Since(began) > handshakeTime/2 {
		t.Errorf("it ended after %s: %v", time.Since(began), err)
	}
	friend.until("waiting for the notice of the drain", func() bool { return friend.drained != "" })
}

// A reason to drain is printed for others, so it is checked as a note is.
func TestReasonToDrainIsChecked(t *testing.T) {
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	var s *Server
	s, address := start(t, e, Options{Drain: func(reason string) { s.Drain(reason) }})
	p := greeted(t, address)
	for _, reason := range []string{"\x1b[2J", "a\nb", "\xff", strings.Repeat("x", lockkeeper.MaxNoteBytes+1)} {
		m := p.answered(p.ask(&wire.Request{Drain: &wire.Drain{Reason: reason}}))
		if _, draining := s.gate.Draining(); draining || !errors.Is(m.GetError().Read(), lockkeeper.ErrInvalid) {
			t.Fatalf("%.20q: %v", reason, m)
		}
	}
	if m := p.answered(p.ask(&wire.Request{Drain: &wire.Drain{Reason: "v2"}})); m.GetAbout().GetDraining() != "v2" {
		t.Errorf("%v", m)
	}
}
