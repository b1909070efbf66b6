// Package memlock keeps claims in this process: a table and nothing else. It is
// the fastest engine and runs every rule; its claims are gone when the program ends.
package memlock

import (
	"crypto/rand"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// New returns an empty engine. Sessions without a TTL are allowed: they live as
// long as the program does, and nothing has to be renewed.
func New() lockkeeper.Engine {
	start := time.Now()
	return keeper.New(lockkeeper.Guarantees{
		Name:     "mem",
		Features: lockkeeper.AllFeatures,
		Reach:    lockkeeper.InProcess,
		Survives: "nothing",
		Fences:   "while the process lives",
		Clock:    "the process's monotonic clock",
		Breaks:   "the end of the process ends all claims",
		Epoch:    strings.ToLower(rand.Text()[:8]),
		NoExpiry: true,
		Prompt:   true,
	}, func() time.Duration { return time.Since(start) })
}
