package script

import (
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// The short scripts of a claim and of its end keep the low-water mark: a claim below it that arrives
// late is refused.
func TestShortScriptsKeepLowWaterMark(t *testing.T) {
	for _, kind := range []quorum.Kind{quorum.Claim, quorum.End} {
		g := newTarget(t, testdb.SharedRedis(t))
		claim := claimRequest("a", 5, "x")
		end := claim
		end.Kind, end.Reason = quorum.End, lockkeeper.Released
		if kind == quorum.Claim {
			claim.LowestOpen = 5
		} else {
			end.LowestOpen = 5
		}
		for _, r := range []quorum.Request{attachRequest("a"), claim, end} {
			if reply, err := g.evaluate(origin, r); err != nil || reply.Outcome != quorum.Done {
				t.Fatalf("%+v: %+v, %v", r, reply, err)
			}
		}
		if reply, err := g.evaluate(origin, claimRequest("a", 3, "x")); err != nil || reply.Outcome != quorum.NotKnown {
			t.Errorf("a claim below the mark that a request of kind %d stated: %+v, %v", kind, reply, err)
		}
	}
}

// Forgotten claims do not stay in memory: a session that goes on for long keeps a few.
func TestForgottenClaimsAreDropped(t *testing.T) {
	g := newTarget(t, testdb.SharedRedis(t))
	if _, err := g.evaluate(origin, attachRequest("a")); err != nil {
		t.Fatal(err)
	}
	for id := range uint64(200) {
		claim := claimRequest("a", id+1, "x")
		claim.LowestOpen = id + 1
		if id%5 == 0 {
			claim.Want.Paths = []string{"x", "y"} // not by the short scripts
		}
		end := claim
		end.Kind, end.Reason = quorum.End, lockkeeper.Released
		for _, r := range []quorum.Request{claim, end} {
			if reply, err := g.evaluate(origin, r); err != nil || reply.Outcome != quorum.Done {
				t.Fatalf("%+v: %+v, %v", r, reply, err)
			}
		}
		if fields := g.commands.do("HLEN", g.set.Data+"s:a").(int64); fields > 8+17 {
			t.Fatalf("after %d claims, of which none is open, the session has %d fields", id+1, fields)
		}
	}
}
