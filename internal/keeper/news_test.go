package keeper

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// TestNewsOfManySessionsKeepsThemApart: each session is told what concerns it, in order, however many are
// safeChanges at once; what comes after a session was taken over is for its new owner alone.
func TestNewsOfManySessionsKeepsThemApart(t *testing.T) {
	for _, sessions := range []int{3, fewItems, fewItems + 1, 100} {
		n := new(news)
		told := make(map[string][]uint64)
		tell := func(owner, session string, id uint64) {
			n.add(session, func(all []lockkeeper.Status) {
				for _, st := range all {
					told[owner+session] = append(told[owner+session], st.Ref.ID)
				}
			}, lockkeeper.Status{Ref: lockkeeper.Ref{Session: session, ID: id}})
		}
		for id := range uint64(4) {
			for i := range sessions {
				owner := "old "
				if id >= 2 && i%3 == 1 {
					owner = "new "
				}
				tell(owner, fmt.Sprint("s", i), id)
			}
			for i := 1; i < sessions && id == 1; i += 3 {
				n.closeItem(fmt.Sprint("s", i))
			}
		}
		n.deliver()
		for i := range sessions {
			old, now := fmt.Sprint(told[fmt.Sprint("old s", i)]), fmt.Sprint(told[fmt.Sprint("new s", i)])
			if i%3 == 1 && (old != "[0 1]" || now != "[2 3]") || i%3 != 1 && (old != "[0 1 2 3]" || now != "[]") {
				t.Errorf("of %d sessions, number %d is told %s, and its new owner %s", sessions, i, old, now)
			}
		}
	}
}

// BenchmarkLeave is the end of a session with so many holds, for each of which another session waits.
func BenchmarkLeave(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				k, key := heldByOne(b, n)
				b.StartTimer()
				if err := k.End(b.Context(), key, lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*b.N), "ns/claim")
		})
	}
}

// heldByOne is a keeper in which one session holds n paths, and another one waits for each of them.
func heldByOne(b *testing.B, n int) (*Keeper, lockkeeper.Key) {
	start := time.Now()
	g := lockkeeper.Guarantees{Name: "test", Features: lockkeeper.TableFeatures}
	k := New(g, func() time.Duration { return time.Since(start) })
	b.Cleanup(func() { k.Close() })
	attach := func(session string) lockkeeper.Key {
		lease, err := k.Attach(context.Background(), lockkeeper.Session{ID: session,
			TTL: time.Hour}, func([]lockkeeper.Status) {})
		if err != nil {
			b.Fatal(err)
		}
		return lease.Key
	}
	holder := attach("holder")
	for i := range n {
		target := lockkeeper.Target{Path: lockkeeper.Path(fmt.Sprintf("a/%d", i)), Mode: lockkeeper.ModeExclusive}
		for _, key := range []lockkeeper.Key{holder, attach(fmt.Sprint("waiter", i))} {
			w := lockkeeper.Want{ID: uint64(i) + 1, Wait: lockkeeper.Forever, Targets: []lockkeeper.Target{target}}
			if _, err := k.Claim(context.Background(), key, w); err != nil {
				b.Fatal(err)
			}
		}
	}
	return k, holder
}
