// Package memlock keeps claims in the memory of this process. It is the fastest engine and
// implements every rule. Its claims end with the process.
package memlock

import (
	"crypto/rand"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// New returns an empty engine. It allows sessions without a TTL: they live as long as the process,
// and their clients need not renew them.
func New() lockkeeper.Engine {
	start := time.Now()
	g := guarantees()
	g.Epoch = strings.ToLower(rand.Text()[:8])
	return keeper.New(g, func() time.Duration { return time.Since(start) })
}

// guarantees returns the guarantees of every engine of this package, without Epoch.
func guarantees() lockkeeper.Guarantees {
	return lockkeeper.Guarantees{
		Name:       "mem",
		Features:   lockkeeper.TableFeatures,
		Reach:      lockkeeper.InProcess,
		Survives:   lockkeeper.SurvivesNothing,
		Fences:     lockkeeper.FencesPerLife,
		FenceScope: lockkeeper.FencesOverAll,
		Clock:      lockkeeper.ClockProcess,
		Breaks:     "the end of the process ends all claims",
		NoExpiry:   true,
		Prompt:     true,
	}
}
