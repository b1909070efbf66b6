package access_test

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// BenchmarkPair measures a claim and its release on a free path, for an engine alone and behind a
// gate. Compare results of the same run.
func BenchmarkPair(b *testing.B) {
	policy, secret := everything("ci")
	gates := []struct {
		name string
		pass func(e lockkeeper.Engine) lockkeeper.Engine
	}{
		{"bare", func(e lockkeeper.Engine) lockkeeper.Engine { return e }},
		{"uncounted", func(e lockkeeper.Engine) lockkeeper.Engine {
			return engineOf(b, access.New(e, nil, access.Options{Uncounted: true}), "")
		}},
		{"open", func(e lockkeeper.Engine) lockkeeper.Engine {
			return engineOf(b, access.New(e, nil, access.Options{}), "")
		}},
		{"identity", func(e lockkeeper.Engine) lockkeeper.Engine {
			return engineOf(b, access.New(e, policy, access.Options{}), secret)
		}},
	}
	for _, g := range gates {
		b.Run(g.name, func(b *testing.B) {
			beneath := memlock.New()
			defer beneath.Close()
			e := g.pass(beneath)
			lease, err := e.Attach(b.Context(), lockkeeper.Session{ID: "s", TTL: time.Hour}, nil)
			if err != nil {
				b.Fatal(err)
			}
			k, ctx := lease.Key, b.Context()
			w := lockkeeper.Want{Wait: lockkeeper.Forever,
				Targets: []lockkeeper.Target{{Path: "db/a", Mode: lockkeeper.ModeExclusive}}}
			b.ReportAllocs()
			for b.Loop() {
				k.LowestOpen = w.ID
				w.ID++
				if _, err := e.Claim(ctx, k, w); err != nil {
					b.Fatal(err)
				}
				if err := e.End(ctx, k, lockkeeper.Ending{Kind: lockkeeper.Release, ID: w.ID}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func engineOf(tb testing.TB, g *access.Gate, secret string) lockkeeper.Engine {
	tb.Helper()
	pass, err := g.Admit(access.Credentials{Token: secret})
	if err != nil {
		tb.Fatal(err)
	}
	return pass.Engine()
}
