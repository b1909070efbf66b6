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
	g := guarantees()
	g.Epoch = strings.ToLower(rand.Text()[:8])
	return keeper.New(g, func() time.Duration { return time.Since(start) })
}

// guarantees returns those of every engine, without Epoch.
func guarantees() lockkeeper.Guarantees {
	return lockkeeper.Guarantees{
		Name:     "mem",
		Features: lockkeeper.AllFeatures,
		Reach:    lockkeeper.InProcess,
		Survives: lockkeeper.SurvivesNothing,
		Fences:   lockkeeper.FencesPerLife,
		Clock:    lockkeeper.ClockProcess,
		Breaks:   "the end of the process ends all claims",
		NoExpiry: true,
		Prompt:   true,
	}
}
