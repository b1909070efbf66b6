package memlock_test

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// ways are the ways to lock that are compared. Each returns a pair of a lock and its release, which
// calls inside between them.
var ways = []struct {
	name string
	pair func(b *testing.B) (pair func(inside func()) error)
}{
	{"memlock", clientPair},
	{"xsync", xsyncPair},
}

// BenchmarkOnePath is a lock and its release by 128 goroutines on one path, fair and blocking,
// beside golang.org/x/sync/semaphore, which knows one counter and nothing else. Each holder yields,
// so that the others are in the queue when it releases and every pair is a hand-off. Compare the two
// of one run.
func BenchmarkOnePath(b *testing.B) {
	const goroutines = 128
	for _, p := range ways {
		b.Run(p.name, func(b *testing.B) {
			pair := p.pair(b)
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for range goroutines {
				all.Go(func() {
					for range b.N/goroutines + 1 {
						if err := pair(runtime.Gosched); err != nil {
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

// BenchmarkFree is a lock and its release on a path that nobody else wants.
func BenchmarkFree(b *testing.B) {
	for _, p := range ways {
		b.Run(p.name, func(b *testing.B) {
			pair := p.pair(b)
			b.ReportAllocs()
			for b.Loop() {
				if err := pair(func() {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// clientPair returns a lock and its release by a Client.
func clientPair(b *testing.B) (pair func(inside func()) error) {
	c, ctx := lockkeeper.New(memlock.New()), context.Background()
	b.Cleanup(func() { c.Close() })
	return func(inside func()) error {
		hold, err := c.Lock(ctx, "db/hot")
		if err != nil {
			return err
		}
		inside()
		return hold.Release(ctx)
	}
}

func xsyncPair(*testing.B) (pair func(inside func()) error) {
	s, ctx := semaphore.NewWeighted(1), context.Background()
	return func(inside func()) error {
		if err := s.Acquire(ctx, 1); err != nil {
			return err
		}
		inside()
		s.Release(1)
		return nil
	}
}
