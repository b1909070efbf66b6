package replica_test

import (
	"context"
	"os"
	"sync/atomic"
	"testing"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/storage"
)

// A storedDisk is the folder of a node.
type storedDisk struct {
	dir   string
	store *storage.Store
}

func (d *storedDisk) Write(writes []replica.Write) error { return d.store.Write(writes) }

func (d *storedDisk) Restart() (replica.State, error) {
	if d.store != nil {
		if err := d.store.Close(); err != nil {
			return replica.State{}, err
		}
	}
	var err error
	if d.store, err = storage.Open(context.Background(), d.dir, storage.Identity{}); err != nil {
		return replica.State{}, err
	}
	return d.store.State()
}

// A simulated cluster runs on the product's storage, which always has what the simulated disk has.
// Its files are in memory, because the simulation does not care how long a sync takes.
func TestSimulationOnStorage(t *testing.T) {
	const inMemory = "/dev/shm"
	if info, err := os.Stat(inMemory); err != nil || !info.IsDir() {
		t.Skipf("no files in memory: %v", err)
	}
	var ids atomic.Uint64
	replica.SimulateOn(t, func(t *testing.T, s replica.State) replica.Backing {
		dir, err := os.MkdirTemp(inMemory, "lockkeeper-test-")
		if err != nil {
			t.Fatal(err)
		}
		d := &storedDisk{dir: dir}
		t.Cleanup(func() {
			if d.store != nil {
				d.store.Close()
			}
			os.RemoveAll(dir)
		})
		if err := storage.Create(dir, storage.Identity{Cluster: "c", ID: ids.Add(1), Name: "n"}, s); err != nil {
			t.Fatal(err)
		}
		return d
	})
}
