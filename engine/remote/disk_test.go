package remote_test

import (
	"os"
	"testing"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/disklock"
	"github.com/lockkeeper/lockkeeper/enginetest"
)

// quickDir returns a folder in memory, where the system has one. The tests here are about the
// network, and parts of the suite leave too little time for a disk that many tests use at once.
func quickDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "lockkeeper-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// durable is harness with claims that are on disk.
var durable = enginetest.Harness{
	Fresh: func(t *testing.T) enginetest.Open {
		e, err := disklock.Open(t.Context(), quickDir(t))
		if err != nil {
			t.Fatal(err)
		}
		_, address := serve(t, e)
		return func() lockkeeper.Engine { return dial(t, address) }
	},
	Many: true,
}

func TestConformanceOnDisk(t *testing.T) {
	testmode.NeedLong(t, "TestConformance runs the suite over a network, and that of disklock on a disk")
	enginetest.Run(t, durable)
}

func TestStressOnDisk(t *testing.T) {
	t.Parallel()
	enginetest.Stress(t, durable)
}
