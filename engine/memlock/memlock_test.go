package memlock_test

import (
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/enginetest"
)

var harness = enginetest.Harness{
	Fresh: func(*testing.T) enginetest.Open {
		return func() lockkeeper.Engine { return memlock.New() }
	},
	Bubble: true,
}

func TestConformance(t *testing.T) { enginetest.Run(t, harness) }

// TestConformanceWithoutSlots is the suite for an engine that keeps all claims in its table.
func TestConformanceWithoutSlots(t *testing.T) {
	h := harness
	h.Fresh = func(*testing.T) enginetest.Open {
		return func() lockkeeper.Engine { return withoutSlots{memlock.New()} }
	}
	enginetest.Run(t, h)
}

// withoutSlots is an engine that has only the methods of Engine.
type withoutSlots struct{ lockkeeper.Engine }

func TestStress(t *testing.T) { enginetest.Stress(t, harness) }
