package join

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/pki"
)

const (
	// CertificateLife is the lifetime of the certificate of a node from its signing on.
	CertificateLife = 90 * duration.Day

	backdated = duration.Day // for nodes whose wall clocks are behind
)

// Credentials are the keys of a running node. They sign the node's certificate, and sign it again
// when it is due. They are safe for concurrent use.
type Credentials struct {
	identity  Identity
	authority *pki.Authority
	key       *ecdsa.PrivateKey
	digest    Digest
	roots     *x509.CertPool

	mu   sync.Mutex
	life time.Duration // of certificates that are signed from now on
	pair tls.Certificate
}

// OpenCredentials reads the keys in a node's folder. identity is that of the node's log.
func OpenCredentials(folder string, identity Identity) (*Credentials, error) {
	authority, err := pki.ReadAuthority(folder, time.Now())
	if err != nil {
		return nil, fmt.Errorf("the CA of the cluster: %w; every other node has a copy of ca.pem and ca-key.pem", err)
	}
	key, err := pki.ReadKey(filepath.Join(folder, keyFile))
	if err != nil {
		return nil, fmt.Errorf("the key of node %q: %w; no other node has it: expel the node at another one by "+
			"lk cluster remove, and join again from an empty folder", identity.Name, err)
	}
	c := &Credentials{identity: identity, authority: authority, key: key, roots: x509.NewCertPool(), life: CertificateLife}
	c.roots.AddCert(authority.Certificate())
	if c.digest, err = digestOf(key); err != nil {
		return nil, err
	}
	_, _, err = c.Present()
	return c, err
}

// Identity returns the identity of the node.
func (c *Credentials) Identity() Identity { return c.identity }

// Key returns the digest of the node's public key.
func (c *Credentials) Key() Digest { return c.digest }

// Authority returns the digest of the CA's certificate, which join tokens state.
func (c *Credentials) Authority() Digest { return sha256.Sum256(c.authority.Certificate().Raw) }

// AuthorityEnds returns when the CA's certificate expires. The CA has to be replaced before that.
func (c *Credentials) AuthorityEnds() time.Time { return c.authority.Certificate().NotAfter }

// Present returns the node's certificate with its key, for both ends of a connection, and the
// authorities of other nodes' certificates. It renews the certificate first if less than a third
// of its lifetime is left, or if the wall clock was set back to before its beginning. It is called
// for each connection, so it needs no timer.
func (c *Credentials) Present() (tls.Certificate, *x509.CertPool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if leaf := c.pair.Leaf; leaf == nil || now.Before(leaf.NotBefore) || !now.Before(leaf.NotAfter.Add(-c.life/3)) {
		pair, err := c.sign(now)
		if err != nil {
			return tls.Certificate{}, nil, err
		}
		c.pair = pair
	}
	return c.pair, c.roots, nil
}

// Shorten makes certificates valid for life instead of CertificateLife, for tests of their renewal.
func (c *Credentials) Shorten(life time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.life, c.pair = life, tls.Certificate{}
}

// sign signs a certificate for the node. The CA's certificate follows it, because a new node knows
// only the digest of that.
func (c *Credentials) sign(now time.Time) (tls.Certificate, error) {
	peer := Peer{Cluster: c.identity.Cluster, ID: c.identity.ID, Name: c.identity.Name}
	signed, err := c.authority.Sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "node " + peer.Name},
		NotBefore:   now.Add(-backdated),
		NotAfter:    now.Add(c.life),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: usages,
		URIs:        []*url.URL{peer.uri()},
	}, c.key.Public())
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(signed)
	if err != nil {
		return tls.Certificate{}, err
	}
	if _, err = ParsePeer(leaf); err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{
		Certificate: [][]byte{signed, c.authority.Certificate().Raw},
		PrivateKey:  c.key,
		Leaf:        leaf,
	}, nil
}
