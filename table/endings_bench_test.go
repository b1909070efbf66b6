package table

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// BenchmarkEnds is a claim and its release whose end the table remembers: until its TTL has passed, or
// until the client states soon that it knows of it.
func BenchmarkEnds(b *testing.B) {
	for _, stated := range []bool{false, true} {
		name := "remembered"
		if stated {
			name = "stated"
		}
		b.Run(name, func(b *testing.B) {
			w := newWorker(b, New(), "w")
			target := []lockkeeper.Target{exclusive("db/hot")}
			b.ReportAllocs()
			for at := time.Duration(0); b.Loop(); at += time.Millisecond {
				w.id++
				if stated {
					w.key.LowestOpen = w.id
				}
				for _, c := range [...]Command{
					{Op: Claim, Want: lockkeeper.Want{ID: w.id, Targets: target, Wait: lockkeeper.Forever}},
					{Op: End, Ending: lockkeeper.Ending{Kind: lockkeeper.Release, ID: w.id}},
				} {
					c.At, c.Key = at, w.key
					if _, err := w.table.Step(&c); err != nil {
						b.Fatal(err)
					}
				}
				if w.id%10_000 == 0 {
					if _, err := w.table.Step(&Command{Op: Renew, At: at, Key: w.key}); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
