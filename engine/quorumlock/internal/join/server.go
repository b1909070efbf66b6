package join

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// Protocol is the name of the join exchange in the handshake of TLS (ALPN), so that it can share a
// port with another protocol. The exchange on one connection is one request and one answer, each a
// frame of package wire with JSON in it. Both sides have a certificate: that of the new node is
// signed by itself, and only shows that it has its key.
const Protocol = "lockkeeper-join"

const (
	form       = 1
	maxRequest = 8 << 10 // bytes
	maxAnswer  = 1 << 20 // bytes
	maxSecret  = 64      // bytes

	maxJoining   = 32               // connections at a time; see limits.Arrivals
	exchangeTime = 20 * time.Second // of one connection, at the cluster's side
)

// An answer is a refusal, or a grant, or neither: then the request may be repeated.
type answer struct {
	Code         Code   `json:"code,omitempty"`   // of a refusal
	Detail       string `json:"detail,omitempty"` // why nothing was granted
	ID           uint64 `json:"id,string,omitempty"`
	Authority    []byte `json:"authority,omitempty"` // the CA, in PEM, of step join
	AuthorityKey []byte `json:"authority_key,omitempty"`
	Members      []Node `json:"members,omitempty"`
}

// A Server answers new nodes, on any node of the cluster. Its fields must not change while it serves.
type Server struct {
	Settings    Settings
	Credentials *Credentials
	Log         *slog.Logger // may be nil
}

// Serve accepts connections of new nodes from l, a listener without TLS, until ctx ends, and then returns
// nil. It closes l, and returns after its connections have ended. At most 32 connections are served at a
// time; then the address with the most loses its oldest one.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	var running sync.WaitGroup
	defer running.Wait()
	arrivals := limits.NewArrivals(maxJoining)
	for {
		raw, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				raw.Close()
			}
			return nil
		}
		if err != nil {
			return err
		}
		arrival := arrivals.Enter(raw, ctx.Done())
		if arrival == nil {
			raw.Close()
			return nil
		}
		running.Go(func() {
			defer arrival.Leave()
			s.ServeConn(ctx, raw)
		})
	}
}

// ServeConn serves one connection of a new node, and closes it, after 20 s at the latest or when ctx
// ends.
func (s *Server) ServeConn(ctx context.Context, raw net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	defer raw.Close()
	if err := s.serve(ctx, raw); err != nil && s.Log != nil {
		s.Log.Warn("a request to join the cluster was not answered", "from", raw.RemoteAddr(), "error", err)
	}
}

func (s *Server) serve(ctx context.Context, raw net.Conn) error {
	own, _, err := s.Credentials.Present()
	if err != nil {
		return err
	}
	secure := tls.Server(raw, &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{Protocol},
		Certificates:           []tls.Certificate{own},
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true,
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		return err
	}
	state := secure.ConnectionState()
	if state.NegotiatedProtocol != Protocol {
		return errors.New("it does not speak the protocol " + Protocol)
	}
	var r request
	if err := readFrame(secure, maxRequest, &r); err != nil {
		return err
	}
	r.key = keyOf(state.PeerCertificates[0])
	if err := writeFrame(secure, s.answer(ctx, &r)); err != nil {
		return err
	}
	return secure.Close()
}

func keyOf(cert *x509.Certificate) Digest { return sha256.Sum256(cert.RawSubjectPublicKeyInfo) }

// answer decides on a request.
func (s *Server) answer(ctx context.Context, r *request) *answer {
	a, err := s.grant(ctx, r)
	if err == nil {
		s.note(slog.LevelInfo, r, "a new node was answered", "id", FormatID(a.ID))
		return a
	}
	s.note(slog.LevelWarn, r, "a new node was not let in", "reason", err)
	a = &answer{Detail: err.Error()}
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		a.Code = refusal.Code
	}
	return a
}

func (s *Server) note(level slog.Level, r *request, text string, more ...any) {
	if s.Log != nil {
		s.Log.Log(context.Background(), level, text, append([]any{"step", r.Step, "name", r.Node.Name}, more...)...)
	}
}

// grant makes the changes that decide returns, until there is a final answer.
func (s *Server) grant(ctx context.Context, r *request) (*answer, error) {
	if err := r.check(); err != nil {
		return nil, refuse(Invalid, "%s", err)
	}
	for range maxTries {
		v, err := s.Settings.Read(ctx)
		if err != nil {
			return nil, unavailable(err)
		}
		setting, id, err := decide(v, r, DrawID)
		if err != nil {
			return nil, err
		}
		if setting == nil {
			return s.granted(v, r, id)
		}
		if err := s.Settings.Put(ctx, *setting); err != nil && !errors.Is(err, ErrRevision) {
			return nil, unavailable(err)
		}
	}
	return nil, unavailable(errors.New("others change the same settings all the time"))
}

func (s *Server) granted(v View, r *request, id uint64) (*answer, error) {
	a := &answer{ID: id}
	var err error
	if a.Members, err = Nodes(v); err != nil || r.Step == stepBegin {
		return a, err
	}
	a.Authority, a.AuthorityKey, err = s.Credentials.authority.Export()
	return a, err
}

// check returns an error that says what is wrong with a request.
func (r *request) check() error {
	switch {
	case r.Form != form:
		return fmt.Errorf("the request has form %d, this node knows form %d: use the version of lk that the cluster has",
			r.Form, form)
	case len(r.Secret) > maxSecret:
		return fmt.Errorf("the secret has %d bytes, at most %d are possible", len(r.Secret), maxSecret)
	case r.Step == stepJoin:
		return CheckName(r.Node.Name)
	case r.Step != stepBegin:
		return fmt.Errorf("the step %.20q is unknown", r.Step)
	case r.Node.ID == 0:
		return errors.New("the request has no id")
	}
	return r.Node.check()
}

func writeFrame(w io.Writer, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.AppendUvarint(nil, uint64(len(text))), text...))
	return err
}

func readFrame(r io.Reader, limit int, message any) error {
	in := bufio.NewReader(r)
	length, err := wire.ReadLength(in, limit)
	if err != nil {
		return err
	}
	text, err := wire.ReadMessage(in, length, nil, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, message)
}
