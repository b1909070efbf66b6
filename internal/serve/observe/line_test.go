package observe

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// BenchmarkLine is a claim that joins a long line, with and without a watch.
func BenchmarkLine(b *testing.B) {
	for _, kind := range []string{"plain", "watched"} {
		for _, length := range []int{10, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", kind, length), func(b *testing.B) {
				e := memlock.New()
				ctx, cancel := context.WithCancel(b.Context())
				defer cancel()
				if kind == "watched" {
					go NewWatch(e, nil, nil, nil).Run(ctx)
				}
				lease, err := e.Attach(ctx, lockkeeper.Session{ID: "s", TTL: time.Hour}, nil)
				if err != nil {
					b.Fatal(err)
				}
				claim := func(id uint64) {
					w := lockkeeper.Want{
						ID:      id,
						Wait:    lockkeeper.Forever,
						Targets: []lockkeeper.Target{{Path: "db/test", Mode: lockkeeper.ModeExclusive}},
					}
					if _, err := e.Claim(ctx, lease.Key, w); err != nil {
						b.Fatal(err)
					}
				}
				id := uint64(0)
				for range length {
					id++
					claim(id)
				}
				for b.Loop() {
					id++
					claim(id)
					if err := e.End(ctx, lease.Key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: id}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
