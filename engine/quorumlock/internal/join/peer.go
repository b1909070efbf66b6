package join

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// A Digest is a SHA-256: of a public key, of a CA certificate, or of the secret of a token.
type Digest [sha256.Size]byte

// String is the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText is String.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(d)) {
		return fmt.Errorf("a digest of %d characters, it has %d", len(text), hex.EncodedLen(len(d)))
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// A Peer is the node that a certificate names.
type Peer struct {
	Cluster string // 32 hexadecimal digits, drawn when the cluster was founded
	ID      uint64 // in the configuration of the log; never 0
	Name    string
	Key     Digest // of its public key, as SubjectPublicKeyInfo
}

// idDigits is the length of an id as text.
const idDigits = 16

// FormatID returns the text of an id: 16 hexadecimal digits.
func FormatID(id uint64) string { return fmt.Sprintf("%0*x", idDigits, id) }

// ParseID reads what FormatID wrote.
func ParseID(text string) (uint64, error) {
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil || id == 0 || FormatID(id) != text {
		return 0, fmt.Errorf("%.40q is no id of a node: it has %d digits from 0 to f, such as 00c0ffee00c0ffee", text,
			idDigits)
	}
	return id, nil
}

const maxName = 63 // bytes

// CheckName returns an error that says what would be right if name is no name for a node: it has 1 to
// 63 of the characters a-z, 0-9, "-", "." and "_", the first one a letter or digit.
func CheckName(name string) error {
	for i, c := range []byte(name) {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || i > 0 && (c == '-' || c == '.' || c == '_') {
			continue
		}
		return fmt.Errorf("the node's name %.80q: use a-z, 0-9, and within it - . _", name)
	}
	if name == "" || len(name) > maxName {
		return fmt.Errorf("the node's name has %d bytes: use 1 to %d", len(name), maxName)
	}
	return nil
}

// uri returns the one name in the certificate of a node:
//
//	lockkeeper://CLUSTER/node/ID/NAME
func (p *Peer) uri() *url.URL {
	return &url.URL{Scheme: access.NodeScheme, Host: p.Cluster, Path: "/node/" + FormatID(p.ID) + "/" + p.Name}
}

// usages are those of the certificate of a node, which calls and is called.
var usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}

var errNoNode = errors.New("this is not the certificate of a node of a cluster")

// ParsePeer returns the node that a certificate names. The caller has verified that the cluster's CA
// signed it. A certificate of another kind, such as a client's or a server's, is an error, even if the
// same CA signed it: that of a node has one URI of the form above and no other name.
func ParsePeer(cert *x509.Certificate) (Peer, error) {
	if len(cert.URIs) != 1 || cert.IsCA ||
		len(cert.DNSNames)+len(cert.IPAddresses)+len(cert.EmailAddresses) > 0 || !slices.Equal(cert.ExtKeyUsage, usages) {
		return Peer{}, errNoNode
	}
	parts := strings.Split(cert.URIs[0].Path, "/") // "", "node", ID, NAME
	if len(parts) != 4 {
		return Peer{}, errNoNode
	}
	id, err := ParseID(parts[2])
	if err != nil {
		return Peer{}, fmt.Errorf("%w: %w", errNoNode, err)
	}
	p := Peer{
		Cluster: cert.URIs[0].Host,
		ID:      id,
		Name:    parts[3],
		Key:     sha256.Sum256(cert.RawSubjectPublicKeyInfo),
	}
	if err := errors.Join(CheckName(p.Name), checkCluster(p.Cluster)); err != nil {
		return Peer{}, fmt.Errorf("%w: %w", errNoNode, err)
	}
	if cert.URIs[0].String() != p.uri().String() {
		return Peer{}, errNoNode
	}
	return p, nil
}

const clusterDigits = 32

// checkCluster returns an error if text is no id of a cluster.
func checkCluster(text string) error {
	b, err := hex.DecodeString(text)
	if err != nil || len(text) != clusterDigits || hex.EncodeToString(b) != text {
		return fmt.Errorf("%.80q is no id of a cluster: it has %d digits from 0 to f", text, clusterDigits)
	}
	return nil
}
