package join

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
)

// Settings are the replicated settings of the cluster, through any of its nodes. Its methods are
// called by several goroutines at a time. An error other than the ones below means that it is unknown
// whether a change was made.
type Settings interface {
	// Read returns the settings as they were at a moment after the call began: with all changes whose
	// Put returned nil before that anywhere, and the leader's time of that moment or later. It does not
	// change afterwards.
	Read(ctx context.Context) (View, error)

	// Put changes one setting, if it still has s.Revision, and else returns ErrRevision. An empty value
	// removes it. ErrFull means that there is no room for it.
	Put(ctx context.Context, s Setting) error
}

// A Setting is a value under a key. Its revision names this state of it: no setting has the same
// revision twice, also if it is removed and made again.
type Setting struct {
	Key      string
	Value    []byte // empty: there is no such setting
	Revision uint64
}

// A View is a state of the settings.
type View interface {
	// Now is the time of the table.
	Now() time.Duration
	// Setting returns the setting under a key; without a value, and with the revision to make it by, if
	// there is none. The value must not be changed.
	Setting(key string) Setting
	// Settings returns the settings whose keys begin with prefix, by key.
	Settings(prefix string) []Setting
}

// The refusals of Settings.Put. They change nothing.
var (
	ErrRevision = errors.New("the setting has changed since it was read")
	ErrFull     = errors.New("the cluster has too many settings: remove join tokens that ended")
	ErrVotes    = errors.New("a node that votes can't be expelled")
)

// Prefixes of the keys of settings.
const (
	nodePrefix    = "node/"
	tokenPrefix   = "token/"
	tokenIDDigits = 16 // of the digest of the secret
)

// A Node is a member of the cluster, as the setting node/NAME has it in JSON.
type Node struct {
	Name    string         `json:"name"`
	ID      uint64         `json:"id,string"`
	Rank    voters.Rank    `json:"rank"`
	Random  uint32         `json:"random"`
	Address netip.AddrPort `json:"address"` // where other nodes reach it
	Clients string         `json:"clients"` // where clients reach it, HOST:PORT; "" if they don't
	Key     Digest         `json:"key"`     // of its public key
	Open    bool           `json:"open"`    // its server does not authenticate its clients
}

// Voter returns what the choice of voters needs to know of the node.
func (n *Node) Voter() voters.Node {
	return voters.Node{Name: n.Name, Rank: n.Rank, Random: n.Random, Address: n.Address}
}

// check returns an error that says what is wrong with a node's data from outside, all but ID and Key.
func (n *Node) check() error {
	if err := CheckName(n.Name); err != nil {
		return err
	}
	if n.Rank > voters.Off {
		return fmt.Errorf("rank %d: it is 0 to %d, or %d for off", n.Rank, voters.RatherNot, voters.Off)
	}
	if !n.Address.IsValid() || n.Address.Port() == 0 || n.Address.Addr().IsUnspecified() || n.Address.Addr().Zone() != "" {
		return fmt.Errorf("the node's address for other nodes is %q: name an IP address and a port at which they reach "+
			"it, such as 10.0.0.1:7430", n.Address)
	}
	if n.Clients == "" {
		return nil
	}
	return checkAddress(n.Clients)
}

// Nodes returns the members of the cluster, by name.
func Nodes(v View) (nodes []Node, err error) {
	for _, s := range v.Settings(nodePrefix) {
		var n Node
		if err := readJSON(s, &n); err != nil {
			return nil, err
		}
		if !expelled(v, n.ID) {
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

// WasRemoved is in the refusal of a removed node, which reads it.
const WasRemoved = "was removed from the cluster"

// Allowed returns an error if a peer, whose certificate is valid, is not to be talked to: if its id was
// expelled, or if it has not the name and the key of the node with its id. An id that the settings
// don't know is allowed: v may be behind, and that node may be the only one from which it can be
// brought up to date. v may be the settings as this node has them now; when they change, the caller
// asks again for the peers that are connected.
func Allowed(v View, p Peer) error {
	if expelled(v, p.ID) {
		return fmt.Errorf("node %s %q %s", FormatID(p.ID), p.Name, WasRemoved)
	}
	nodes, err := Nodes(v)
	if err != nil {
		return err
	}
	for i := range nodes {
		if n := &nodes[i]; n.ID == p.ID && (n.Name != p.Name || n.Key != p.Key) {
			return fmt.Errorf("a certificate for node %s %q has the key %s, and the cluster knows that id as node %q with "+
				"the key %s: if you did not replace that key, the CA's key was stolen", FormatID(p.ID), p.Name, p.Key, n.Name,
				n.Key)
		}
	}
	return nil
}

// expelled reports whether an id is let in never again.
func expelled(v View, id uint64) bool { return len(v.Setting(voters.ExpelledKey(id)).Value) > 0 }

// nodeNamed returns the node under a name, expelled or not, and its setting; the zero Node if there
// never was one.
func nodeNamed(v View, name string) (n Node, s Setting, err error) {
	s = v.Setting(nodePrefix + name)
	if len(s.Value) > 0 {
		err = readJSON(s, &n)
	}
	return n, s, err
}

// A TokenRecord is what the cluster knows of a token, as the setting token/START has it in JSON. START
// is the first 16 digits of Digest; people name the token by it.
type TokenRecord struct {
	Digest Digest        `json:"digest"` // of the secret
	Ends   time.Duration `json:"ends"`   // in the time of the table; from then on it can't be used
	Claim  *Claim        `json:"claim,omitempty"`
}

// A Claim is the use of a token: by one key, for one name. ID was drawn for it.
type Claim struct {
	Key  Digest `json:"key"`
	Name string `json:"name"`
	ID   uint64 `json:"id,string"`
}

// ID returns the name of the token for people, which is no secret.
func (t *TokenRecord) ID() string { return t.Digest.String()[:tokenIDDigits] }

func (t *TokenRecord) key() string { return tokenPrefix + t.ID() }

func readJSON(s Setting, to any) error {
	if err := json.Unmarshal(s.Value, to); err != nil {
		return fmt.Errorf("the cluster's setting %s: %w", s.Key, err)
	}
	return nil
}

// with returns s with another value.
func (s Setting) with(value any) (Setting, error) {
	text, err := json.Marshal(value)
	s.Value = text
	return s, err
}
