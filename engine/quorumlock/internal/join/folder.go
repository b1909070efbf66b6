package join

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/pki"
)

// The files that this package has in a node's folder, beside the node's log:
//
//	ca.pem, ca-key.pem   the cluster's CA
//	node-key.pem         the node's own key
//	joined.json          the Identity, once the node is a member
const (
	keyFile    = "node-key.pem"
	joinedFile = "joined.json"
)

// An Identity says which node of which cluster a log belongs to.
type Identity struct {
	Cluster string // see Peer
	ID      uint64
	Name    string
	Random  uint32 // for the choice of voters
}

// Found prepares the folder of the first node of a new cluster: it makes the CA and the node's key,
// or takes those that are there, and draws the ids of the cluster and of the node. The caller then
// creates the node's log with the identity, which makes it final, and calls [Enrol] as soon as the
// node leads. Found may be repeated until there is a log.
func Found(folder, name string) (Identity, error) {
	if err := CheckName(name); err != nil {
		return Identity{}, err
	}
	if _, err := pki.OpenAuthority(folder, time.Now()); err != nil {
		return Identity{}, err
	}
	key, err := pki.OpenKey(filepath.Join(folder, keyFile))
	if err != nil {
		return Identity{}, err
	}
	digest, err := digestOf(key)
	if err != nil {
		return Identity{}, err
	}
	var cluster [clusterDigits / 2]byte
	rand.Read(cluster[:]) // never fails
	return newIdentity(hex.EncodeToString(cluster[:]), DrawID(), name, digest), nil
}

// newIdentity returns an identity whose random number follows from the node's key.
func newIdentity(cluster string, id uint64, name string, key Digest) Identity {
	return Identity{Cluster: cluster, ID: id, Name: name, Random: randomOf(key)}
}

func randomOf(key Digest) uint32 { return binary.BigEndian.Uint32(key[:]) }

// DrawID returns a random id for a node. No counter is kept that a restored backup could set back, and
// two of 2^64 ids are never drawn alike.
func DrawID() uint64 {
	for {
		var b [8]byte
		rand.Read(b[:]) // never fails
		if id := binary.BigEndian.Uint64(b[:]); id != 0 {
			return id
		}
	}
}

// digestOf returns the digest of the public key.
func digestOf(key *ecdsa.PrivateKey) (Digest, error) {
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	return sha256.Sum256(public), err
}

// readJoined returns the identity of the member whose folder it is; the zero Identity if its node has
// not become a member yet.
func readJoined(folder string) (id Identity, err error) {
	text, err := os.ReadFile(filepath.Join(folder, joinedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &id)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("%s: %w", filepath.Join(folder, joinedFile), err)
	}
	return id, nil
}

func writeJoined(folder string, id Identity) error {
	text, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return pki.WriteFile(filepath.Join(folder, joinedFile), append(text, '\n'), 0o600)
}
