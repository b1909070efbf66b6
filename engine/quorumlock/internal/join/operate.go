package join

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
	"github.com/lockkeeper/lockkeeper/internal/duration"
)

// The functions of this file change the settings of the cluster for its operator. They may be repeated
// after any error. An error other than ErrInvalid, ErrFull, ErrVotes and a *Refusal is [lockkeeper.ErrUnavailable].

// maxTokens bounds the tokens that have not ended.
const maxTokens = 100

// maxTries bounds how often a change is tried while others change the same settings.
const maxTries = 16

// CreateToken makes a token that admits one node within life. c are the credentials of any node, and
// addresses, HOST:PORT, are where a new node asks. It also removes tokens that have ended. If it fails
// after the token was made, nobody has the token, and it ends by itself.
func CreateToken(ctx context.Context, s Settings, c *Credentials, life time.Duration, addresses []string) (Token,
	error) {
	if life < ShortestTokenLife || life > LongestTokenLife {
		return Token{}, lockkeeper.Invalid("a join token for %s: it can be used for %s to %s", duration.Text(life),
			duration.Text(ShortestTokenLife), duration.Text(LongestTokenLife))
	}
	if err := checkAddresses(addresses); err != nil {
		return Token{}, lockkeeper.Invalid("%s", err)
	}
	t := Token{Cluster: c.identity.Cluster, Authority: c.Authority(), Secret: newSecret(), Addresses: addresses}
	record := TokenRecord{Digest: sha256.Sum256(t.Secret[:])}
	err := change(ctx, s, func(v View) (*Setting, error) {
		tokens, err := Tokens(v)
		if err != nil {
			return nil, err
		}
		live := 0
		for i := range tokens {
			if tokens[i].Digest == record.Digest {
				return nil, nil // the answer of an earlier try was lost
			}
			if v.Now() >= tokens[i].Ends {
				ended := v.Setting(tokens[i].key())
				ended.Value = nil
				return &ended, errAgain
			}
			live++
		}
		if live >= maxTokens {
			return nil, lockkeeper.Invalid("%d join tokens can be used now, and more are not allowed: withdraw some", live)
		}
		record.Ends = v.Now() + life
		setting, err := v.Setting(record.key()).with(record)
		return &setting, err
	})
	return t, err
}

// Tokens returns the tokens of the cluster that were not removed, by their names.
func Tokens(v View) (tokens []TokenRecord, err error) {
	for _, s := range v.Settings(tokenPrefix) {
		var t TokenRecord
		if err := readJSON(s, &t); err != nil {
			return nil, err
		}
		tokens = append(tokens, t)
	}
	return tokens, nil
}

// WithdrawToken removes the token with that name, which [TokenRecord.ID] returns. A node that has used
// it and has begun stays a member; one that has not begun has to join again.
func WithdrawToken(ctx context.Context, s Settings, id string) error {
	first := true
	return change(ctx, s, func(v View) (*Setting, error) {
		setting := v.Setting(tokenPrefix + id)
		if len(setting.Value) == 0 {
			if first {
				return nil, lockkeeper.Invalid("the cluster has no join token %.80q", id)
			}
			return nil, nil
		}
		first = false
		setting.Value = nil
		return &setting, nil
	})
}

// CheckReason returns an ErrInvalid if Expel does not take a reason.
func CheckReason(reason string) error {
	if reason == "" || len(reason) > 1000 {
		return lockkeeper.Invalid("the reason has %d bytes: write 1 to 1000", len(reason))
	}
	return nil
}

// Expel bars an id forever: because the node is removed, or because its disk is lost, as reason says.
// Its name is free from then on. Nodes talk to an expelled one no more, at once; so an id that votes is not expelled,
// and the error is ErrVotes.
func Expel(ctx context.Context, s Settings, id uint64, reason string) error {
	if err := CheckReason(reason); err != nil {
		return err
	}
	return change(ctx, s, func(v View) (*Setting, error) {
		nodes, err := Nodes(v)
		if err != nil || expelled(v, id) {
			return nil, err
		}
		for i := range nodes {
			if nodes[i].ID == id {
				setting, err := v.Setting(voters.ExpelledKey(id)).with(reason)
				return &setting, err
			}
		}
		return nil, lockkeeper.Invalid("the cluster has no node with the id %s", FormatID(id))
	})
}

// Enrol makes the first node of a cluster its first member. The node calls it whenever it leads and
// [Nodes] does not list it.
func Enrol(ctx context.Context, s Settings, c *Credentials, n Node) error {
	n.Name, n.ID, n.Key, n.Random = c.identity.Name, c.identity.ID, c.digest, randomOf(c.digest)
	if err := n.check(); err != nil {
		return lockkeeper.Invalid("%s", err)
	}
	return change(ctx, s, func(v View) (*Setting, error) {
		present, setting, err := nodeNamed(v, n.Name)
		switch {
		case err != nil:
			return nil, err
		case present.ID == n.ID:
			return nil, nil
		case present.ID != 0 || expelled(v, n.ID):
			return nil, refuse(NameTaken, "the cluster has a node %q already, with the id %s", n.Name, FormatID(present.ID))
		}
		setting, err = setting.with(n)
		return &setting, err
	})
}

// errAgain is returned by a function for change whose change is not the last one.
var errAgain = errors.New("another change follows")

// change reads the settings, makes the change that next returns, and does that again until next
// returns no change, or the change was made.
func change(ctx context.Context, s Settings, next func(v View) (*Setting, error)) error {
	for range maxTries + 2*maxTokens {
		v, err := s.Read(ctx)
		if err != nil {
			return unavailable(err)
		}
		setting, err := next(v)
		again := err == errAgain
		if err != nil && !again || setting == nil {
			return err
		}
		switch err := s.Put(ctx, *setting); {
		case errors.Is(err, ErrRevision):
		case errors.Is(err, ErrFull), errors.Is(err, ErrVotes):
			return err
		case err != nil:
			return unavailable(err)
		case !again:
			return nil
		}
	}
	return unavailable(errors.New("others change the same settings all the time"))
}

func unavailable(cause error) error {
	if errors.Is(cause, lockkeeper.ErrUnavailable) {
		return cause
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: fmt.Errorf("the settings of the cluster: %w", cause)}
}
