package script

import (
	"math/rand/v2"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// Many claims of one path wait, leave the queue, and get the vote one after the other, with the same
// replies and messages from the scripts as from quorum.Server: the short scripts queue and hand over.
func TestShortScriptsHandOver(t *testing.T) {
	redis := testdb.SharedRedis(t)
	for seed := range testmode.Seeds(t, testmode.Pick(6, 500)) {
		random := rand.New(rand.NewPCG(seed, 0))
		g, server := newTarget(t, redis), quorum.NewServer(quorum.Limits{Claims: MaxClaims})
		now := quorum.Micros(origin)
		apply := func(r quorum.Request) quorum.Reply {
			t.Helper()
			now++
			want, wantMessages := server.Apply(now, r)
			got, gotMessages, err := g.apply(now, r)
			if err != nil || asText(got) != asText(want) || asText(gotMessages) != asText(wantMessages) {
				t.Fatalf("%s\nscript: %s %s, %v\nserver: %s %s\n%s", asText(r), asText(got), asText(gotMessages), err,
					asText(want), asText(wantMessages), testmode.Replay(t, seed))
			}
			return want
		}
		sessions := []string{"a", "b", "c"}
		for _, s := range sessions {
			apply(attachRequest(s))
		}
		var open []quorum.Request
		for id := uint64(1); id < 60 || len(open) > 0; id++ {
			if id < 60 && (len(open) < 2 || random.IntN(2) == 0) {
				r := claimRequest(sessions[random.IntN(3)], id, "x")
				r.Want.Ticket, r.Want.Priority = uint64(now), random.IntN(2)
				if random.IntN(20) > 0 {
					r.Want.Steal, r.Want.After = lockkeeper.NoSteal, 0
				}
				apply(r)
				open = append(open, r)
				continue
			}
			k := random.IntN(len(open)) // at most one has the vote: of the others it ends the wait
			for i := range open {
				if random.IntN(3) > 0 && apply(open[i]).Claims[0].Vote != 0 {
					k = i
				}
			}
			r := open[k]
			r.Kind, r.Reason, r.LowestOpen = quorum.End, lockkeeper.Released, r.ID+uint64(random.IntN(2))
			for i := range open {
				if open[i].Session == r.Session && i != k {
					r.LowestOpen = min(r.LowestOpen, open[i].ID)
				}
			}
			apply(r)
			open = append(open[:k], open[k+1:]...)
		}
		g.commands.do("FLUSHALL")
		g.close()
	}
}
