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

func TestStress(t *testing.T) { enginetest.Stress(t, harness) }
