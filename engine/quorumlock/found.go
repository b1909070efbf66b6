package quorumlock

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/founding"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/storage"
)

// A Token admits one new node to a cluster. Its text is secret.
type Token = join.Token

// A Refusal is the final answer of a cluster to a node that wants to join.
type Refusal = join.Refusal

// ParseToken reads the text of a token. Its errors do not repeat the text.
func ParseToken(text string) (Token, error) { return join.ParseToken(text) }

// ReadToken reads the token in a file, or if file is "", in the environment variable LOCKKEEPER_JOIN_TOKEN. It
// refuses a file that other users may read.
func ReadToken(file string) (Token, error) { return join.ReadToken(file) }

// Found makes the first node of a new cluster in a folder, which it creates if there is none: keys, and
// a log with this one voter. The cluster begins with the locks of from, which gives them up for good; nil
// means no locks. Open then runs the node.
//
// Found refuses a folder that has a node, unless from says that it has moved to that very node. If it is
// cut short, it may be called again, with the same folder and source; if it returns nil, the node is
// durable. At no moment do both source and cluster have the locks.
func Found(folder string, c Config, from Source) error { return found(folder, &c, from, nil) }

// A Source is an engine that gives its locks to a new cluster, such as a *disklock.Move.
type Source = founding.Source

// found makes the first node of a cluster with these settings beside its own.
func found(folder string, c *Config, from Source, more []replica.Setting) error {
	if from != nil && from.MovedTo() != "" {
		return founding.Resume(context.Background(), folder, from)
	}
	n, err := c.newNode()
	if err != nil {
		return err
	}
	stored, err := storedIdentity(context.Background(), folder)
	if err != nil {
		return err
	}
	if known, err := join.KnownMembers(folder); stored != nil || len(known) > 0 || err != nil {
		return errors.Join(err, lockkeeper.Invalid("%s has a node, or the keys of one: name a new folder", folder))
	}
	identity, err := join.Found(folder, c.Name)
	if err != nil {
		return err
	}
	keys, err := join.OpenCredentials(folder, identity)
	if err != nil {
		return err
	}
	begin := &beginning{settings: more}
	if err := join.Enrol(context.Background(), begin, keys, n); err != nil {
		return err
	}
	return founding.Create(folder, storage.Identity(identity), begin.settings, from)
}

// A beginning has the settings of a cluster that is being founded.
type beginning struct{ settings []replica.Setting }

// Read implements join.Settings.
func (b *beginning) Read(context.Context) (join.View, error) {
	slices.SortFunc(b.settings, func(a, c replica.Setting) int { return strings.Compare(a.Key, c.Key) })
	return newView(0, 0, b.settings), nil
}

// Put implements join.Settings.
func (b *beginning) Put(_ context.Context, s join.Setting) error {
	b.settings = append(b.settings, replica.Setting(s))
	return nil
}

// ErrOtherCluster is the cause of an error of Join with a token whose addresses are now those of nodes of
// other clusters.
var ErrOtherCluster = join.ErrOtherCluster

// CheckJoined returns an error if the node of a folder has joined another cluster than that of the token.
func CheckJoined(folder string, t Token) error { return join.CheckJoined(folder, t) }

// Join makes the node of a folder a member of the token's cluster, and creates the folder if there is
// none. It asks the addresses in the token until a node answers or ctx ends. Open then runs the node, and
// the leader gives it the log.
//
// If the node can't listen at its address, Join returns an ErrUnavailable before it uses the token.
//
// A Join that was cut short may be called again, with the same token, at any time: it goes on where it
// stopped. A *Refusal is final, such as for a name that another node has, or for a folder whose node was
// a member and has lost its log. ErrOtherCluster is final, too.
func Join(ctx context.Context, folder string, token Token, c Config) error {
	n, err := c.newNode()
	if err != nil {
		return err
	}
	stored, err := storedIdentity(ctx, folder)
	if err != nil {
		return err
	}
	l, err := listenAt(ctx, c.Listen)
	if err != nil {
		return err
	}
	if err := l.Close(); err != nil { // Open listens again: until then nobody could answer there
		return err
	}
	j := join.Joiner{
		Token:  token,
		Folder: folder,
		Node:   n,
		Stored: stored,
		Store: func(id join.Identity) error {
			return storage.Create(folder, storage.Identity(id), replica.State{})
		},
		Log: c.Logger,
	}
	_, err = j.Join(ctx)
	return err
}

// storedIdentity returns the identity of the log in a folder; nil if there is none, or if its
// creation was cut short. A log that is damaged counts as none, too: the cluster knows whether its id was a
// member, and nothing creates a log where one is.
func storedIdentity(ctx context.Context, folder string) (*join.Identity, error) {
	s, err := storage.Open(ctx, folder, storage.Identity{})
	if errors.Is(err, storage.ErrNoNode) || errors.Is(err, storage.ErrLost) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	id := join.Identity(s.Identity())
	return &id, s.Close()
}
