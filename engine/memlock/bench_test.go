package memlock_test

import (
	"context"
	"sync"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// BenchmarkOnePath is a lock and its release by many goroutines on one path,
// fair and blocking, beside golang.org/x/sync/semaphore, which knows one
// counter and nothing else. Compare the two of one run.
func BenchmarkOnePath(b *testing.B) {
	const goroutines = 128
	run := func(b *testing.B, pair func()) {
		b.ReportAllocs()
		var wg sync.WaitGroup
		turns := make(chan struct{}, 1024)
		for range goroutines {
			wg.Go(func() {
				for range turns {
					for range 16 {
						pair()
					}
				}
			})
		}
		n := 0
		for b.Loop() {
			if n++; n%16 == 0 {
				turns <- struct{}{}
			}
		}
		close(turns)
		wg.Wait()
	}
	ctx := context.Background()
	b.Run("memlock", func(b *testing.B) {
		c := lockkeeper.New(memlock.New())
		defer c.Close()
		run(b, func() {
			hold, err := c.Lock(ctx, "db/hot")
			if err != nil {
				b.Error(err)
				return
			}
			if err := hold.Release(ctx); err != nil {
				b.Error(err)
			}
		})
	})
	b.Run("xsync", func(b *testing.B) {
		s := semaphore.NewWeighted(1)
		run(b, func() {
			if err := s.Acquire(ctx, 1); err != nil {
				b.Error(err)
				return
			}
			s.Release(1)
		})
	})
}

// BenchmarkFree is a lock and its release on a path that nobody else wants.
func BenchmarkFree(b *testing.B) {
	ctx := context.Background()
	c := lockkeeper.New(memlock.New())
	defer c.Close()
	b.ReportAllocs()
	for b.Loop() {
		hold, err := c.Lock(ctx, "db/a")
		if err != nil {
			b.Fatal(err)
		}
		if err := hold.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
