package quorumlock

import (
	"fmt"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/enginetest"
)

// harness opens nodes of a new cluster of n, in the fake time of a bubble: one after the other.
func harness(n int) enginetest.Harness {
	return enginetest.Harness{
		Many:   n > 1,
		Bubble: true,
		Fresh: func(t *testing.T) enginetest.Open {
			c, opened := newCluster(t, n, 0), 0
			c.ready()
			return func() lockkeeper.Engine {
				opened++
				return c.servers[opened%n].engine
			}
		},
	}
}

var sizes = []int{1, 3, 5}

func TestConformance(t *testing.T) {
	for _, n := range sizes {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) { enginetest.Run(t, harness(n)) })
	}
}

func TestStress(t *testing.T) {
	for _, n := range sizes {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) { enginetest.Stress(t, harness(n)) })
	}
}
