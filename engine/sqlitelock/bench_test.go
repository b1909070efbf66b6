package sqlitelock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/roles"
)

// pair locks and releases one path.
func pair(ctx context.Context, c *lockkeeper.Client, path string) error {
	hold, err := c.Lock(ctx, path)
	if err != nil {
		return err
	}
	return hold.Release(ctx)
}

// BenchmarkPair is a lock and its release by one process alone: two commits.
func BenchmarkPair(b *testing.B) {
	c, _ := testClient(b, file(b))
	for b.Loop() {
		if err := pair(context.Background(), c, "db/a"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPairs is the same by several goroutines of one process on paths of
// their own, which share commits.
func BenchmarkPairs(b *testing.B) {
	for _, goroutines := range []int{8, 128} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
			c, _ := testClient(b, file(b))
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ResetTimer()
			for i := range goroutines {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if err := pair(context.Background(), c, fmt.Sprintf("db/%d", i)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// BenchmarkHandOff is two processes that take one path in turn: each time is a
// release here, a grant, a release there and a grant here.
func BenchmarkHandOff(b *testing.B) {
	path := file(b)
	c, _ := testClient(b, path)
	other := roles.Start(b, "queue", path, "db/hot")
	hold, err := c.Lock(context.Background(), "db/hot")
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		fmt.Fprintln(other.In, "go")
		other.Read("queued")
		pending, err := c.Enqueue(context.Background(), lockkeeper.Exclusive("db/hot"))
		if err != nil {
			b.Fatal(err)
		}
		hold.Close()
		if hold, err = pending.Wait(context.Background()); err != nil {
			b.Fatal(err)
		}
		other.Read("held")
		other.Read("released")
	}
	b.StopTimer()
	hold.Close()
}
