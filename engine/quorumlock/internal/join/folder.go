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
//	members.json         the members when the node joined: where it finds them until it has the settings
//	joined.json          the Identity, once the node is a member
const (
	keyFile     = "node-key.pem"
	membersFile = "members.json"
	joinedFile  = "joined.json"
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
	err = readFile(folder, joinedFile, &id)
	return id, err
}

// HasJoined reports whether the node of the folder has become a member.
func HasJoined(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, joinedFile))
	return err == nil
}

func writeJoined(folder string, id Identity) error { return writeFile(folder, joinedFile, id) }

// CheckJoined returns ErrOtherCluster if the node of a folder has joined another cluster than that of the
// token; nil if it has joined none.
func CheckJoined(folder string, t Token) error {
	id, err := readJoined(folder)
	if err == nil && id.ID != 0 && id.Cluster != t.Cluster {
		err = fmt.Errorf("%s has node %q of the cluster %s, the token is for the cluster %s: %w", folder, id.Name, id.Cluster,
			t.Cluster, ErrOtherCluster)
	}
	return err
}

// KnownMembers returns the members of the cluster when the node of this folder joined; none if it has not
// joined, or is the first one.
func KnownMembers(folder string) (members []Node, err error) {
	err = readFile(folder, membersFile, &members)
	return members, err
}

// readFile reads what writeFile wrote. If there is no file, it changes nothing.
func readFile(folder, name string, to any) error {
	text, err := os.ReadFile(filepath.Join(folder, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(folder, name), err)
	}
	return nil
}

func writeFile(folder, name string, content any) error {
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return pki.WriteFile(filepath.Join(folder, name), append(text, '\n'), 0o600)
}

// CopyAuthority copies the CA from the folder of a node into another folder.
func CopyAuthority(from, to string) error {
	authority, err := pki.ReadAuthority(from, time.Now())
	if err != nil {
		return err
	}
	certificate, key, err := authority.Export()
	if err != nil {
		return err
	}
	_, err = pki.ImportAuthority(to, certificate, key, time.Now())
	return err
}
