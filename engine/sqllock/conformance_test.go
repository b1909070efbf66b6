package sqllock

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/enginetest"
)

// crowd bounds how many tests of the suite run at once. Their sessions live for
// a second, and all of them share the processors, and the disk that each commit
// waits for.
var crowd = make(chan struct{}, 6)

// harness opens handles on one file, each of which is as another process.
func harness(options Options) enginetest.Harness {
	return enginetest.Harness{
		Many: true,
		Fresh: func(t *testing.T) enginetest.Open {
			crowd <- struct{}{}
			t.Cleanup(func() { <-crowd })
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
