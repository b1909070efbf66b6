package quorumlock

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// BenchmarkPair is a lock and its release on paths that nobody else wants, on three nodes in this
// process whose disks and network take no time: what the log, the table and the goroutines cost.
func BenchmarkPair(b *testing.B) {
	for _, clients := range []int{1, 128} {
		b.Run(fmt.Sprint(clients, " clients"), func(b *testing.B) {
			c, ctx := newCluster(b, 3, 0), context.Background()
			c.ready()
			var all []*lockkeeper.Client
			for i := range clients {
				all = append(all, lockkeeper.New(c.servers[i%3].engine))
			}
			b.ReportAllocs()
			b.ResetTimer()
			var running sync.WaitGroup
			for i, client := range all {
				path := fmt.Sprint("path/", i)
				running.Go(func() {
					for range b.N/clients + 1 {
						hold, err := client.Lock(ctx, path)
						if err != nil {
							b.Error(err)
							return
						}
						if err := hold.Release(ctx); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			running.Wait()
		})
	}
}
