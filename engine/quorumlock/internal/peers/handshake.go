package peers

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

const (
	protocol  = "lockkeeper-peers" // of ALPN
	magic     = "lk"               // begins an offer
	maxOffer  = 128                // bytes
	maxAnswer = 1 << 10

	maxAddress = 100 // bytes
)

// forms are the forms of messages that a node knows: those of frames and of package replica.
type forms struct{ lowest, highest uint64 }

var ownForms = forms{1, 1}

// A role is a node's part in a handshake.
type role struct {
	wrap       func(net.Conn, *tls.Config) *tls.Conn
	peersUsage x509.ExtKeyUsage // what the peer's certificate must be good for
}

var (
	caller     = role{tls.Client, x509.ExtKeyUsageServerAuth}
	calledNode = role{tls.Server, x509.ExtKeyUsageClientAuth}
)

// secure performs the TLS handshake. The caller bounds the time.
func (t *Transport) secure(raw net.Conn, r role) (*stream, error) {
	own, authorities, err := t.settings.Credentials()
	if err != nil {
		return nil, fmt.Errorf("the certificate of this node: %w", err)
	}
	var id uint64
	secure := r.wrap(raw, &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{protocol},
		Certificates:           []tls.Certificate{own},
		SessionTicketsDisabled: true,
		// VerifyConnection verifies the peer, whose certificate names a node and not a host.
		InsecureSkipVerify: true,
		ClientAuth:         tls.RequireAnyClientCert,
		VerifyConnection: func(state tls.ConnectionState) (err error) {
			id, err = t.verify(&state, authorities, r.peersUsage)
			return err
		},
	})
	if err := secure.Handshake(); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return newStream(secure, raw, id), nil
}

// verify returns the id in the certificate of a peer of the same cluster.
func (t *Transport) verify(state *tls.ConnectionState, authorities *x509.CertPool, usage x509.ExtKeyUsage) (
	id uint64, err error,
) {
	if state.NegotiatedProtocol != protocol || len(state.PeerCertificates) == 0 {
		return 0, errors.New("the other side is no node of a cluster")
	}
	options := x509.VerifyOptions{
		Roots:         authorities,
		Intermediates: x509.NewCertPool(),
		KeyUsages:     []x509.ExtKeyUsage{usage},
	}
	for _, c := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	leaf := state.PeerCertificates[0]
	if _, err := leaf.Verify(options); err != nil {
		return 0, err
	}
	cluster, id, err := t.settings.Identify(leaf)
	switch s := &t.settings; {
	case err != nil:
		return 0, err
	case cluster != s.Cluster:
		return 0, fmt.Errorf("a node of cluster %q, and this is cluster %q", cluster, s.Cluster)
	case id == 0 || id == s.ID:
		return 0, fmt.Errorf("the certificate is that of node %016x, which is this node itself", id)
	}
	return id, nil
}

// offer offers the forms of this node to a peer, and reads its answer.
func (t *Transport) offer(s *stream) error {
	b := binary.AppendUvarint([]byte(magic), t.forms.lowest)
	b = binary.AppendUvarint(b, t.forms.highest)
	b = append(binary.AppendUvarint(b, uint64(len(t.settings.Address))), t.settings.Address...)
	if err := wire.WriteFrame(s, &frame{head: b}); err != nil {
		return err
	}
	answer, err := s.first(maxAnswer)
	if err != nil {
		return err
	}
	form, text, err := cutNumber(answer)
	switch {
	case err != nil:
		return err
	case form == 0:
		return fmt.Errorf("it refuses this node: %s", strings.ToValidUTF8(string(text), "?"))
	case form < t.forms.lowest || form > t.forms.highest:
		return fmt.Errorf("%w: node %016x chose form %d of those from %d to %d", errFrame, s.id, form, t.forms.lowest,
			t.forms.highest)
	}
	return nil
}

// readOffer reads the offer of a peer, and returns the form to use and where the peer listens.
func (t *Transport) readOffer(s *stream) (form uint64, address string, err error) {
	b, err := s.first(maxOffer)
	if err != nil {
		return 0, "", err
	}
	if len(b) < len(magic) || string(b[:len(magic)]) != magic {
		return 0, "", fmt.Errorf("%w: the offer does not begin with %q", errFrame, magic)
	}
	theirs := forms{}
	if theirs.lowest, b, err = cutNumber(b[len(magic):]); err != nil {
		return 0, "", err
	}
	if theirs.highest, b, err = cutNumber(b); err != nil {
		return 0, "", err
	}
	if n, text, err := cutNumber(b); err == nil && n <= uint64(len(text)) { // what follows belongs to later versions
		address = parseAddress(string(text[:n]))
	}
	if form, err = choose(theirs, t.forms); err != nil {
		return 0, "", fmt.Errorf("node %016x knows the forms %d to %d of messages between nodes, and node %016x the forms "+
			"%d to %d: %w", t.settings.ID, t.forms.lowest, t.forms.highest, s.id, theirs.lowest, theirs.highest, err)
	}
	return form, address, t.settings.allow(s.leaf)
}

// parseAddress returns IP:PORT as it is usually written; "" if the text is no such address.
func parseAddress(text string) string {
	a, err := netip.ParseAddrPort(text)
	if err != nil || len(text) > maxAddress || a.Port() == 0 || a.Addr().IsUnspecified() {
		return ""
	}
	return a.String()
}

// choose returns the highest form that both know.
func choose(a, b forms) (uint64, error) {
	form := min(a.highest, b.highest)
	if form == 0 || form < max(a.lowest, b.lowest) {
		return 0, errors.New("run versions of lk on them that have one in common")
	}
	return form, nil
}

// first reads one frame of the handshake.
func (s *stream) first(limit int) ([]byte, error) {
	length, err := wire.ReadLength(s.in, limit)
	if err != nil {
		return nil, err
	}
	return wire.ReadMessage(s.in, length, nil, nil)
}

// answer returns the answer to an offer.
func answer(form uint64) *frame { return &frame{head: binary.AppendUvarint(nil, form)} }

// refusal returns the answer that refuses a peer.
func refusal(err error) *frame {
	text := err.Error()
	return &frame{[]byte{0}, []byte(text[:min(len(text), maxAnswer-1)])}
}
