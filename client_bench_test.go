package lockkeeper_test

import (
	"context"
	"fmt"
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
			next := make(chan int, goroutines)
			for i := range goroutines {
				go func() {
					n := 0
					for range b.N/goroutines + 1 {
						hold, err := client.Lock(ctx, "mydatabase/mytest")
						if err != nil {
							b.Error(err)
							break
						}
						if err := hold.Release(ctx); err != nil {
							b.Error(err)
							break
						}
						n++
					}
					next <- n + 0*i
				}()
			}
			for range goroutines {
				<-next
			}
		})
	}
}
