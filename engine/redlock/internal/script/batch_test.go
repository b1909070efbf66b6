package script

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// Claims and Ends in one call have the replies that quorum.Server gives to one after the other, and leave
// the same data. Some are for the batch, and some between them are not: paths that are taken, repetitions,
// steals, and claims of two paths.
func TestBatchAndServerAgree(t *testing.T) {
	redis := testdb.SharedRedis(t)
	for seed := range testmode.Seeds(t, testmode.Pick(40, 5_000)) {
		random := rand.New(rand.NewPCG(seed, 0))
		claims := []int{MaxClaims, 30}[seed%2]
		g, server := newLimitedTarget(t, redis, claims), quorum.NewServer(quorum.Limits{Claims: claims})
		now, next, low := quorum.Micros(origin), map[string]uint64{"a": 1, "b": 1}, map[string]uint64{}
		spread := []int{4, 200}[seed%2] // paths
		open := map[string][]quorum.Request{}
		var story strings.Builder
		apply := func(all ...quorum.Request) {
			t.Helper()
			now += quorum.Micros(random.IntN(3))
			replies, errs := g.evaluateAll(now, all...)
			for i, r := range all {
				want, _ := server.Apply(now, r)
				fmt.Fprintf(&story, "%d.%d %s\n", now-origin, i, asText(r))
				if errs[i] != nil || asText(replies[i]) != asText(want) {
					t.Fatalf("%s\nscript: %s, %v\nserver: %s\n%s", &story, asText(replies[i]), errs[i], asText(want),
						testmode.Replay(t, seed))
				}
			}
		}
		apply(attachRequest("a"))
		apply(attachRequest("b"))
		if seed%4 < 2 { // counters as they are in use: 9 bytes, when they are packed
			high := claimRequest("b", 1, "high")
			high.Kind, high.Restore = quorum.Restore, quorum.RestoreRequest{TTL: 9_000_000, To: "party",
				Claims: []quorum.RestoreClaim{{ID: 1, Want: high.Want, Fence: origin}}}
			apply(high)
			next["b"] = 2
		}
		if seed%3 == 0 {
			apply(quorum.Request{Kind: quorum.List, Limit: 10, Ends: true}) // from now on somebody follows
		}
		for range 30 {
			session := []string{"a", "a", "b"}[random.IntN(3)]
			var all []quorum.Request
			for range 1 + random.IntN(20) {
				r := claimRequest(session, next[session], fmt.Sprintf("p%03d", random.IntN(spread)))
				r.Want.Priority, r.Want.Ticket, r.Want.Steal, r.Want.After = 0, uint64(now), lockkeeper.NoSteal, 0
				r.LowestOpen = low[session]
				switch k := len(open[session]); {
				case k > 0 && random.IntN(2) == 0:
					at := random.IntN(k)
					r = open[session][at]
					open[session] = append(open[session][:at], open[session][at+1:]...)
					r.Kind, r.Reason = quorum.End, lockkeeper.Released
				case k > 0 && random.IntN(15) == 0:
					r = open[session][random.IntN(k)] // repeated
				default:
					next[session] += uint64([]int{1, 1, 1, 2000}[random.IntN(4)])
					if random.IntN(20) == 0 {
						r.Want.Steal, r.Want.Priority = lockkeeper.Ask, 1
					}
					if random.IntN(20) == 0 {
						r.Want.Paths = append(r.Want.Paths, "q")
					}
					open[session] = append(open[session], r)
				}
				if random.IntN(4) == 0 { // whatever is open stays open
					low[session] = next[session]
					for _, o := range open[session] {
						low[session] = min(low[session], o.ID)
					}
				}
				r.LowestOpen = low[session]
				all = append(all, r)
			}
			apply(all...)
		}
		// Lists have all that is left.
		apply(quorum.Request{Kind: quorum.List, Limit: 10, Ends: seed%3 == 0})
		g.commands.do("FLUSHALL")
		g.close()
	}
}

// A damaged record spoils the request that is about it, and no other of its batch.
func TestDamageSpoilsOneRequestOfBatch(t *testing.T) {
	g := newTarget(t, testdb.SharedRedis(t))
	if _, err := g.evaluate(origin, attachRequest("a")); err != nil {
		t.Fatal(err)
	}
	var all []quorum.Request
	for id := range uint64(6) {
		all = append(all, claimRequest("a", id+1, fmt.Sprint("p", id)))
	}
	g.commands.do("SET", g.set.Data+"p:p2", "garbage")
	g.commands.do("RPUSH", g.set.Data+"p:p4", "garbage")
	replies, errs := g.evaluateAll(origin, all...)
	for i := range all {
		if damaged := i == 2 || i == 4; damaged != (errs[i] != nil) {
			t.Errorf("claim %d: %+v, %v", i+1, replies[i], errs[i])
		} else if damaged && Refusal(errs[i]) == nil {
			t.Errorf("claim %d: an error without meaning: %v", i+1, errs[i])
		} else if !damaged && replies[i].Claims[0].State != lockkeeper.Held {
			t.Errorf("claim %d: %+v", i+1, replies[i])
		}
	}
}
