package redislink

import (
	"testing"

	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/membership"
)

// membershipWith returns the vector of a party with a higher generation of server i.
func membershipWith(t *testing.T, w *watched, i int) membership.Vector {
	t.Helper()
	v := w.group.current()
	higher := membership.Vector{Set: v.Set, Generations: append([]membership.Generation(nil), v.Generations...)}
	higher.Generations[i] = membership.NewGeneration(v.Generations[i].Count()+1, 7)
	return higher
}
