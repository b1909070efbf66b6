package redislink

import (
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/membership"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/script"
)

// direct are the commands that the engine sends outside of scripts, as ACL rules name them.
var direct = []string{
	"config|get", "eval", "evalsha", "hello", "info", "ping", "scan", "script|load", "select", "subscribe", "time",
	"unsubscribe",
}

// Rights returns the ACL rules that a user needs: the commands of the engine and of its scripts, on the
// keys and channels that begin with prefix.
func Rights(prefix string) string {
	all := slices.Clone(direct)
	for _, c := range slices.Concat(script.Commands(), membership.Commands()) {
		all = append(all, strings.ToLower(c))
	}
	slices.Sort(all)
	return "~" + prefix + "* &" + prefix + "* +" + strings.Join(slices.Compact(all), " +")
}
