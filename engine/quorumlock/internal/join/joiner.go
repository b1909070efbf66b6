package join

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"path/filepath"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/duration"
	"github.com/lockkeeper/lockkeeper/internal/pki"
)

// ErrLogLost is the cause of a refusal to join with a folder whose node was a member, and whose log is
// gone.
var ErrLogLost = errors.New("the node of this folder was a member of its cluster, and its log is gone")

// ErrOtherCluster means that the node at an address is one of another cluster than the join token.
var ErrOtherCluster = errors.New("this is no node of the cluster that the join token is for")

// A Joiner is a new node that joins a cluster.
type Joiner struct {
	Token  Token
	Folder string
	Node   Node // all but ID, Random and Key

	// Stored is the identity of the log in the folder; nil if there is no log. Store creates an empty
	// log of that identity; when it returns nil, the log is on disk.
	Stored *Identity
	Store  func(Identity) error

	Log *slog.Logger // may be nil

	dial func(ctx context.Context, address string) (net.Conn, error) // nil: TCP
}

const (
	tryTime       = 30 * time.Second // of one request to one address
	shortestPause = 200 * time.Millisecond
	longestPause  = 5 * time.Second
)

// Join makes the node a member, and returns its credentials. It goes on where an earlier Join in the
// same folder stopped, and asks the addresses in turn until one answers or ctx ends. A *Refusal is
// final, and so is ErrOtherCluster: all addresses are now those of nodes of other clusters. A node that
// has joined before gets its credentials without any request.
func (j *Joiner) Join(ctx context.Context) (*Credentials, error) {
	joined, err := readJoined(j.Folder)
	switch {
	case err != nil:
		return nil, err
	case joined.ID != 0 && j.Stored == nil:
		return nil, fmt.Errorf("%s: %w: remove node %q by lk cluster remove, and join from an empty folder with a new token",
			j.Folder, ErrLogLost, joined.Name)
	case joined.ID != 0 && joined != *j.Stored:
		return nil, fmt.Errorf("%s has the log of node %s %q, and the keys of node %s %q: put back what belongs together",
			j.Folder, FormatID(j.Stored.ID), j.Stored.Name, FormatID(joined.ID), joined.Name)
	case joined.ID != 0:
		return OpenCredentials(j.Folder, joined)
	}
	if err := j.Node.check(); err != nil {
		return nil, err
	}
	key, err := pki.OpenKey(filepath.Join(j.Folder, keyFile))
	if err != nil {
		return nil, err
	}
	identity, err := j.prepare(ctx, key)
	if err != nil {
		return nil, err
	}
	node := j.Node
	node.ID = identity.ID
	begun, err := j.ask(ctx, key, &request{Step: stepBegin, Node: node})
	if err != nil {
		return nil, err
	}
	if err := writeFile(j.Folder, membersFile, begun.Members); err != nil {
		return nil, err
	}
	if err := writeJoined(j.Folder, identity); err != nil {
		return nil, err
	}
	return OpenCredentials(j.Folder, identity)
}

// prepare returns the identity of the node after its log and the CA are on disk.
func (j *Joiner) prepare(ctx context.Context, key *ecdsa.PrivateKey) (Identity, error) {
	if j.Stored != nil {
		if j.Stored.Cluster != j.Token.Cluster || j.Stored.Name != j.Node.Name {
			return Identity{}, fmt.Errorf("%s has the log of node %q of cluster %s, and the join token is for cluster %s, "+
				"to join as %q: use an empty folder", j.Folder, j.Stored.Name, j.Stored.Cluster, j.Token.Cluster, j.Node.Name)
		}
		return *j.Stored, nil
	}
	a, err := j.ask(ctx, key, &request{Step: stepJoin, Node: Node{Name: j.Node.Name}})
	if err != nil {
		return Identity{}, err
	}
	block, _ := pem.Decode(a.Authority)
	if block == nil || sha256.Sum256(block.Bytes) != j.Token.Authority || a.ID == 0 {
		return Identity{}, errors.New("the answer of the cluster has no id, or a CA that is not the one in the join token")
	}
	if _, err := pki.ImportAuthority(j.Folder, a.Authority, a.AuthorityKey, time.Now()); err != nil {
		return Identity{}, err
	}
	digest, err := digestOf(key)
	if err != nil {
		return Identity{}, err
	}
	identity := newIdentity(j.Token.Cluster, a.ID, j.Node.Name, digest)
	return identity, j.Store(identity)
}

// ask sends a request to one address after the other, until it gets a final answer.
func (j *Joiner) ask(ctx context.Context, key *ecdsa.PrivateKey, r *request) (*answer, error) {
	own, err := selfSigned(key)
	if err != nil {
		return nil, err
	}
	r.Form, r.Secret = form, j.Token.Secret[:]
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		var all []error
		others := 0
		for _, address := range j.Token.Addresses {
			a, err := j.try(ctx, address, own, r)
			if err == nil {
				return a, nil
			}
			if refusal, ok := errors.AsType[*Refusal](err); ok {
				return nil, refusal
			}
			if errors.Is(err, ErrOtherCluster) {
				others++
			}
			all = append(all, fmt.Errorf("%s: %w", address, err))
		}
		err := errors.Join(all...)
		if others == len(j.Token.Addresses) {
			return nil, err
		}
		if j.Log != nil {
			j.Log.Warn("no node of the cluster has answered yet", "step", r.Step, "error", err, "again_in", pause)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("no node of the cluster has answered: %w: %w", context.Cause(ctx), err)
		}
	}
}

// try sends a request to one address.
func (j *Joiner) try(ctx context.Context, address string, own tls.Certificate, r *request) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	dial := j.dial
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	raw, err := dial(ctx, address)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	secure := tls.Client(raw, &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{Protocol},
		Certificates:           []tls.Certificate{own},
		SessionTicketsDisabled: true,
		// VerifyConnection verifies the node, whose certificate names no host.
		InsecureSkipVerify: true,
		VerifyConnection:   j.verify,
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if err := writeFrame(secure, r); err != nil {
		return nil, err
	}
	a := new(answer)
	if err := readFrame(secure, maxAnswer, a); err != nil {
		return nil, err
	}
	switch {
	case a.Code != "":
		return nil, &Refusal{a.Code, a.Detail}
	case a.Detail != "":
		return nil, errors.New(a.Detail)
	}
	return a, nil
}

// verify returns an error if the other side is no node of the token's cluster: if its certificate is
// not signed by the CA whose digest the token has.
func (j *Joiner) verify(state tls.ConnectionState) error {
	certs := state.PeerCertificates
	if state.NegotiatedProtocol != Protocol || len(certs) != 2 {
		return errors.New("this is no node of a cluster")
	}
	if sha256.Sum256(certs[1].Raw) != j.Token.Authority {
		return ErrOtherCluster
	}
	roots := x509.NewCertPool()
	roots.AddCert(certs[1])
	if _, err := certs[0].Verify(x509.VerifyOptions{Roots: roots}); err != nil { // for servers, by default
		return err
	}
	peer, err := ParsePeer(certs[0])
	if err != nil {
		return err
	}
	if peer.Cluster != j.Token.Cluster {
		return fmt.Errorf("%w: it is one of %s, the token is for %s", ErrOtherCluster, peer.Cluster, j.Token.Cluster)
	}
	return nil
}

// selfSigned returns a certificate that only shows that its owner has the key.
func selfSigned(key *ecdsa.PrivateKey) (tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now(),
		NotAfter:     time.Now().Add(duration.Day),
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}, err
}
