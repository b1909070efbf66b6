//go:build unix

package quorumlock

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper"
)

// cpu is what this process has used of the processors.
func cpu(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRealPair is a lock and its release on paths that nobody else wants, with folders and sockets:
// all nodes and clients are in this process. The CPU is that of all of them together.
func BenchmarkRealPair(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		for _, clients := range []int{1, 16, 128} {
			b.Run(fmt.Sprintf("%d nodes/%d clients", nodes, clients), func(b *testing.B) {
				ms := foundMachines(b, nodes)
				benchPairs(b, ms, clients, func(i int) string { return fmt.Sprint("path/", i) })
			})
		}
	}
}

// stays is a node that its clients do not close.
type stays struct{ *Engine }

// Close implements lockkeeper.Engine.
func (stays) Close() error { return nil }

// benchPairs measures pairs of clients, which begin at the nodes in turn.
func benchPairs(b *testing.B, ms *machines, clients int, path func(client int) string) {
	ctx, left := context.Background(), atomic.Int64{}
	var all []*lockkeeper.Client
	for i := range clients {
		client := lockkeeper.New(stays{ms.all[i%len(ms.all)].engine})
		b.Cleanup(func() { client.Close() })
		all = append(all, client)
	}
	pair := func(i int) {
		hold, err := all[i].Lock(ctx, path(i))
		if err == nil {
			err = hold.Release(ctx)
		}
		if err != nil {
			b.Error(err)
		}
	}
	for i := range all {
		pair(i)
	}
	left.Store(int64(b.N))
	began, used := time.Now(), cpu(b)
	b.ResetTimer()
	var running sync.WaitGroup
	for i := range all {
		running.Go(func() {
			for left.Add(-1) >= 0 {
				pair(i)
			}
		})
	}
	running.Wait()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "pairs/s")
	b.ReportMetric(float64((cpu(b)-used).Microseconds())/float64(b.N), "cpu-µs/pair")
}

// BenchmarkRealHandOff is the time from one holder of a path to the next one, of 128 clients at three
// nodes.
func BenchmarkRealHandOff(b *testing.B) {
	ms := foundMachines(b, 3)
	benchPairs(b, ms, 128, func(int) string { return "path" })
}

// BenchmarkIdle is what three nodes in this process use while nobody asks them anything.
func BenchmarkIdle(b *testing.B) {
	ms := foundMachines(b, 3)
	ms.all[0].lock("once").Release(context.Background())
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	used := cpu(b)
	for b.Loop() {
		<-time.After(10 * time.Second)
	}
	spent := cpu(b) - used
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(spent.Seconds()/b.Elapsed().Seconds()/3*100, "%cpu/node")
	b.ReportMetric(float64(after.HeapAlloc)/3/(1<<20), "heap-MB/node")
	b.ReportMetric(float64(after.Sys)/3/(1<<20), "sys-MB/node")
}
