package script

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
)

// A Script is a Lua script as a Redis server keeps it.
type Script struct {
	Text string
	SHA  string // of Text, in hex: the argument of EVALSHA
}

//go:embed lua/*.lua
var files embed.FS

// script returns the script that executes all requests. Frequent cases come first: they need few calls
// and no functions. The rules for all requests are declared when one needs them. The script is put
// together at the first call: most programs that link this package never need it.
var script = sync.OnceValue(newScript)

// Commands are the commands that the scripts execute: a user of an ACL needs them, and EVALSHA.
func Commands() []string {
	return []string{
		"DEL", "EXISTS", "GET", "HDEL", "HGET", "HGETALL", "HLEN", "HMGET", "HSET", "MGET", "MSET", "PEXPIRE", "PUBLISH",
		"SET",
		"TIME", "ZADD", "ZLEXCOUNT", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZREM", "ZREMRANGEBYRANK",
		"ZSCORE",
	}
}

// Scripts returns all scripts, for SCRIPT LOAD.
func Scripts() []*Script { return []*Script{script()} }

// The files of the script, in order.
var (
	frequent = []string{"begin", "claim", "end", "batch"}
	rules    = []string{"store", "queue", "settle", "states", "sessions", "requests", "restore", "dispatch"}
)

func newScript() *Script {
	var b strings.Builder
	add := func(names ...string) {
		for _, name := range names {
			text, err := files.ReadFile("lua/" + name + ".lua")
			if err != nil {
				panic(err) // the file is a part of this program
			}
			b.Write(text)
		}
	}
	b.WriteString(constants())
	add(frequent...)
	b.WriteString("\nlocal function rules()\n")
	add(rules...)
	b.WriteString("return general\nend\n")
	add("main")
	return scriptWith(b.String())
}

// constants declares Go's numbers of states, reasons, outcomes and kinds in Lua.
func constants() string {
	values := []struct {
		name  string
		value int
	}{
		{"WAITING", int(lockkeeper.Waiting)}, {"HELD", int(lockkeeper.Held)}, {"ENDED", int(lockkeeper.Ended)},
		{"RELEASED", int(lockkeeper.Released)}, {"STOLEN", int(lockkeeper.Stolen)},
		{"EXPIRED", int(lockkeeper.Expired)}, {"TIMED_OUT", int(lockkeeper.TimedOut)},
		{"REVOKED", int(lockkeeper.Revoked)}, {"SUPERSEDED", int(lockkeeper.Superseded)},
		{"NO_STEAL", int(lockkeeper.NoSteal)}, {"TAKE", int(lockkeeper.Take)},
		{"DONE", int(quorum.Done)}, {"NO_SESSION", int(quorum.NoSession)}, {"OTHER_EPOCH", int(quorum.OtherEpoch)},
		{"NOT_KNOWN", int(quorum.NotKnown)}, {"DIFFERS", int(quorum.Differs)}, {"FULL", int(quorum.Full)},
		{"ATTACH", int(quorum.Attach)}, {"RENEW", int(quorum.Renew)}, {"CLAIM", int(quorum.Claim)},
		{"STAMP", int(quorum.Stamp)}, {"RETURN", int(quorum.Return)}, {"END", int(quorum.End)},
		{"LEAVE", int(quorum.Leave)}, {"RESTORE", int(quorum.Restore)}, {"ACK", int(quorum.Ack)},
		{"REVOKE", int(quorum.Revoke)}, {"LIST", int(quorum.List)},
		{"MAX_CLAIMS", MaxClaims}, {"MAX_LISTED", MaxClaims},
		{"MAX_BLOCKERS", lockkeeper.MaxBlockers}, {"NAMED_AHEAD", quorum.NamedAhead},
		{"MAX_PRIORITY", lockkeeper.MaxPriority},
		{"MAX_ENDS", quorum.MaxEnds}, {"FOLLOWED_FOR", int(quorum.FollowedFor)}, {"ENDS_SHOWN", int(quorum.EndsShown)},
	}
	var b strings.Builder
	for _, v := range values {
		fmt.Fprintf(&b, "local %s = %d\n", v.name, v.value)
	}
	return b.String()
}

func scriptWith(text string) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{Text: text, SHA: hex.EncodeToString(sum[:])}
}

var (
	// ErrGone says that the server is no member of a set: its marker is missing.
	ErrGone = errors.New("the Redis server has no marker of a set")

	// ErrDamaged says that a record of the server is not as a script wrote it. The text names the key.
	ErrDamaged = errors.New("the data in the Redis server is damaged")
)

// An OtherSetError says that the server has another marker than the caller expects: it belongs to
// another set, or a server of the set has lost its data since.
type OtherSetError struct{ Marker string }

func (e *OtherSetError) Error() string {
	return fmt.Sprintf("the Redis server has the marker %q of another set or generation", e.Marker)
}

// Refusal returns the meaning of an error reply of a script: an error that matches ErrGone or
// ErrDamaged, or an OtherSetError. The script then changed nothing. It returns nil for every other
// error.
func Refusal(reply error) error {
	text := reply.Error()
	if marker, ok := strings.CutPrefix(text, "LKOTHER "); ok {
		return &OtherSetError{Marker: marker}
	}
	if strings.HasPrefix(text, "LKGONE ") {
		return ErrGone
	}
	if what, ok := strings.CutPrefix(text, "LKDATA "); ok {
		return fmt.Errorf("%w: %s", ErrDamaged, what)
	}
	return nil
}
