package semaphore

import (
	"runtime"
	"testing"
)

// TestShardsByCores: with any number of cores, keys spread over all shards, and the number of idle
// keys is within the documented bounds.
func TestShardsByCores(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for cores, want := range map[int]int{1: 8, 2: 16, 3: 32, 4: 32, 5: 64, 8: 64, 9: 128, 64: 128, 1000: 128} {
		runtime.GOMAXPROCS(cores)
		m := New[int]()
		if len(m.shards) != want {
			t.Errorf("%d cores: %d shards, want %d", cores, len(m.shards), want)
		}
		keep := 0
		for i := range m.shards {
			keep += int(m.shards[i].maxIdle)
		}
		if most := 16_384; keep > most || keep < 1024*min(cores, 16) || keep > 2048*cores {
			t.Errorf("%d cores: %d idle keys may stay", cores, keep)
		}
		used := make(map[*shard[int]]bool)
		for key := range 50 * want {
			_, s := m.find(key)
			used[s] = true
		}
		if len(used) != want {
			t.Errorf("%d cores: keys use %d shards of %d", cores, len(used), want)
		}
	}
}

// TestEachManagerHasItsSeed: keys that collide in one manager do not collide in another.
func TestEachManagerHasItsSeed(t *testing.T) {
	a, b := New[int](), New[int]()
	same := 0
	for key := range 100 {
		one, _ := a.find(key)
		other, _ := b.find(key)
		if one == other {
			same++
		}
	}
	if same > 1 {
		t.Errorf("%d keys of 100 have the same hash in two managers", same)
	}
}
