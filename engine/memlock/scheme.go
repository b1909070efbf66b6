package memlock

import (
	"context"

	"github.com/lockkeeper/lockkeeper"
)

// url is the only URL of this engine. Each Open makes a new, empty engine.
const url = "mem:"

func init() {
	lockkeeper.Register(lockkeeper.Scheme{
		Names:      []string{"mem"},
		Form:       url,
		Example:    url,
		About:      "the memory of this process",
		Help:       "locks in memory",
		Page:       "docs/engines/memory.md",
		Guarantees: guarantees(),
		Misspelt:   []string{"memory"},
		Check:      check,
		Open:       func(context.Context, string) (lockkeeper.Engine, error) { return New(), nil },
	})
}

func check(text string) error {
	if text != url {
		return lockkeeper.Invalid("engine %q: nothing follows mem: because its locks are in this process alone", text)
	}
	return nil
}
