package semaphore

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var seedFlag = flag.Uint64("seed", 0, "replay random tests with this seed; 0: another one each time")

// Seeded returns the seed of a random test, and says how to replay it.
func Seeded(t *testing.T) uint64 {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay: go test ./semaphore -run '^%s$' -seed %d", t.Name(), seed)
	return seed
}
