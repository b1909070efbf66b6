package redlock

import (
	"context"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

func init() {
	lockkeeper.Register(lockkeeper.Scheme{
		Names:   []string{"redis", "rediss"},
		Form:    "redis://HOST,HOST,HOST",
		Example: "redis://10.0.0.1,10.0.0.2,10.0.0.3",
		About:   "independent Redis servers, of which a minority may be lost",
		Help: "exclusive locks over 1, 3, 5 or 7 independent Redis servers (6.2 or later, or Valkey), with priorities and " +
			"a steal. Each is [USER:PASSWORD@]HOST[:PORT][/DATABASE]; the user, password and database of the first count " +
			"for those that have none. rediss:// is over TLS. A password can be in REDISCLI_AUTH instead. After ? and " +
			"between & can follow prefix=NAME:, password_file=FILE, ca=FILE, cert=FILE and key=FILE",
		Page:          "docs/engines/redis.md",
		Guarantees:    guarantees(),
		Existing:      "create=off",
		FileParameter: namesFile,
		Misspelt:      []string{"valkey", "redi", "redies", "keydb", "redlock"},
		Guess:         guess,
		Check:         Check,
		Open:          openURL,
		Reset:         Reset,
	})
}

// guess suggests the URL for what some other tools write.
func guess(url string) string {
	name, rest, _ := strings.Cut(url, ":")
	switch strings.ToLower(name) {
	case "valkeys", "redis+tls", "redis+ssl", "redis-tls":
		return "rediss:" + rest
	case "redis-sentinel", "redis-cluster", "redis+sentinel", "redis+cluster":
		return "redis:" + rest
	}
	return ""
}

func openURL(ctx context.Context, url string) (lockkeeper.Engine, error) {
	e, err := Open(ctx, url)
	if err != nil {
		return nil, err
	}
	return e, nil
}
