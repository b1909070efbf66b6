package sqllock

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/enginetest"
)

// harness opens handles on one file, each of which is as another process.
func harness(options Options) enginetest.Harness {
	return enginetest.Harness{
		Many: true,
		Fresh: func(t *testing.T) enginetest.Open {
			path := filepath.Join(t.TempDir(), "locks.db")
			return func() lockkeeper.Engine {
				e, err := Open(context.Background(), path, options)
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
		},
	}
}

func TestConformance(t *testing.T) { enginetest.Run(t, harness(Options{})) }

func TestStress(t *testing.T) { enginetest.Stress(t, harness(Options{})) }
