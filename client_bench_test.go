package lockkeeper_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// BenchmarkLock is a lock and a release: alone, and by 128 goroutines on one path.
func BenchmarkLock(b *testing.B) {
	for _, goroutines := range []int{1, 128} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			client := lockkeeper.New(memlock.New())
			defer client.Close()
			ctx := context.Background()
			b.ReportAllocs()
			var all sync.WaitGroup
			for range goroutines {
				all.Go(func() {
					for range b.N/goroutines + 1 {
						hold, err := client.Lock(ctx, "mydatabase/mytest")
						if err == nil {
							err = hold.Release(ctx)
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}
