package quorumlock

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/enginetest"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// realHarness opens nodes of new clusters of n, with folders and sockets, in real time.
func realHarness(n int) enginetest.Harness {
	return enginetest.Harness{
		Many: n > 1,
		Fresh: func(t *testing.T) enginetest.Open {
			ms, opened := foundMachines(t, n), 0
			return func() lockkeeper.Engine {
				opened++
				return ms.all[opened%n].engine
			}
		},
	}
}

func TestRealNodesConform(t *testing.T) {
	testmode.NeedLong(t, "each check founds a cluster, and time is real; TestConformance has the same nodes in memory")
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) { enginetest.Run(t, realHarness(n)) })
	}
}

// TestRealFailovers stops and starts nodes with folders and sockets, mostly the leader, while clients at
// all nodes make random requests.
func TestRealFailovers(t *testing.T) {
	testmode.NeedLong(t, "time is real; TestStressDuringFailovers has the same nodes in memory")
	for _, n := range []int{3} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			quit, ended := make(chan struct{}), new(sync.WaitGroup)
			var ms *machines
			enginetest.Stress(t, enginetest.Harness{
				Many: true,
				Fresh: func(t *testing.T) enginetest.Open {
					ms = foundMachines(t, n)
					opened := 0
					ended.Go(func() { ms.failOver(quit) })
					return func() lockkeeper.Engine {
						opened++
						return ms.visitor(opened % n)
					}
				},
				Calm: func() {
					close(quit)
					ended.Wait()
					for _, m := range ms.all {
						m.await("contact", func(s replica.Status) bool { return s.Contact })
					}
				},
			})
		})
	}
}

// failOver stops and starts machines until quit is closed.
func (ms *machines) failOver(quit <-chan struct{}) {
	random := testmode.Rand(ms)
	for {
		m := ms.all[random.IntN(len(ms.all))]
		for _, other := range ms.all {
			if other.engine.node.Status().Ready && random.IntN(3) > 0 {
				m = other
			}
		}
		if random.IntN(2) == 0 {
			m.crash()
		} else {
			m.stop()
		}
		if err := m.open(); err != nil {
			ms.Error(err)
			return
		}
		select {
		case <-quit:
			return
		case <-time.After(time.Second + time.Duration(random.Int64N(int64(2*time.Second)))):
		}
	}
}
