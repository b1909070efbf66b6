//go:build unix

package disklock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// cpu is what this process has used of the processors.
func cpu(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPairs is a claim and its release by many goroutines, each on a path of
// its own: on the journal beside the same keeper without a log, through a client
// and directly. Compare the two of one run.
func BenchmarkPairs(b *testing.B) {
	for _, goroutines := range []int{1, 16, 128} {
		for _, direct := range []bool{true, false} {
			for _, durable := range []bool{false, true} {
				name := fmt.Sprintf("goroutines=%d/direct=%v/disk=%v", goroutines, direct, durable)
				b.Run(name, func(b *testing.B) { benchPairs(b, goroutines, direct, durable) })
			}
		}
	}
}

func benchPairs(b *testing.B, goroutines int, direct, durable bool) {
	var e lockkeeper.Engine
	var j *journal
	if durable {
		d := openHere(b, b.TempDir(), options{})
		e, j = d, d.journal
	} else {
		start := time.Now()
		e = keeper.New(guarantees(), func() time.Duration { return time.Since(start) })
	}
	defer e.Close()
	c := lockkeeper.New(e)
	var wg sync.WaitGroup
	var left atomic.Int64
	pairs := make([]func(), goroutines)
	for i := range pairs {
		pairs[i] = clientPair(b, c, i)
		if direct {
			pairs[i] = enginePair(b, e, i)
		}
		pairs[i]()
	}
	left.Store(int64(b.N))
	syncs, entries := int64(0), int64(0)
	if j != nil {
		syncs, entries = j.stats.syncs.Load(), j.stats.entries.Load()
	}
	began, used := time.Now(), cpu(b)
	b.ResetTimer()
	for _, pair := range pairs {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				pair()
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	b.ReportMetric(float64(b.N)/took.Seconds(), "pairs/s")
	b.ReportMetric(float64((cpu(b)-used).Microseconds())/float64(b.N), "cpu-us/pair")
	if j != nil {
		syncs = j.stats.syncs.Load() - syncs
		b.ReportMetric(float64(syncs)/took.Seconds(), "syncs/s")
		b.ReportMetric(float64(j.stats.entries.Load()-entries)/float64(syncs), "entries/sync")
	}
}

func clientPair(b *testing.B, c *lockkeeper.Client, i int) func() {
	path := fmt.Sprint("bench/", i)
	return func() {
		h, err := c.Lock(context.Background(), path)
		if err == nil {
			err = h.Release(context.Background())
		}
		if err != nil {
			b.Error(err)
		}
	}
}

func enginePair(b *testing.B, e lockkeeper.Engine, i int) func() {
	ctx := context.Background()
	lease, err := e.Attach(ctx, lockkeeper.Session{ID: fmt.Sprint("session", i), TTL: time.Hour}, nil)
	if err != nil {
		b.Fatal(err)
	}
	id, path := uint64(0), lockkeeper.Path(fmt.Sprint("bench/", i))
	return func() {
		id++
		w := lockkeeper.Want{
			ID:      id,
			Wait:    lockkeeper.Forever,
			Targets: []lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}},
		}
		_, err := e.Claim(ctx, lease.Key, w)
		if err == nil {
			err = e.End(ctx, lease.Key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: id})
		}
		if err != nil {
			b.Error(err)
		}
	}
}
