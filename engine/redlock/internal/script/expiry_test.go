package script

import (
	"fmt"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

// Thousands of sessions may end at once. A request ends a part of them, and all that it meets.
func TestMassExpiryIsSpreadOverRequests(t *testing.T) {
	const sessions, bound = 1000, 200
	g := newTarget(t, testdb.SharedRedis(t))
	for i := range sessions {
		name := fmt.Sprintf("s%04d", i)
		for _, r := range []quorum.Request{attachRequest(name), claimRequest(name, 1, "path/"+name)} {
			if reply, err := g.evaluate(origin+quorum.Micros(i), r); err != nil || reply.Outcome != quorum.Done {
				t.Fatalf("%+v: %+v, %v", r, reply, err)
			}
		}
	}
	left := func() int { return int(g.commands.do("ZCARD", g.set.Until()).(int64)) }
	now := quorum.Micros(origin + 20_000_000)
	reply, messages, err := g.apply(now, quorum.Request{Kind: quorum.Renew, Session: "s0000", Epoch: 1})
	if err != nil || reply.Outcome != quorum.NoSession {
		t.Errorf("a renewal of an ended session: %+v, %v", reply, err)
	}
	if got := left(); got != sessions-bound || len(messages) != bound {
		t.Errorf("a request left %d of %d sessions, with %d messages; want to end %d", got, sessions, len(messages), bound)
	}
	last := fmt.Sprintf("s%04d", sessions-1)
	end := quorum.Request{Kind: quorum.End, Session: last, Epoch: 1, ID: 1, Reason: lockkeeper.Released}
	reply, err = g.evaluate(now, end)
	if err != nil || reply.Outcome != quorum.NoSession || left() != 0 {
		t.Errorf("a request met the last session: %+v, %v, and %d sessions are left", reply, err, left())
	}
	if reply, err = g.evaluate(now, attachRequest("next")); err != nil {
		t.Fatal(err)
	}
	reply, err = g.evaluate(now, claimRequest("next", 1, "path/"+last))
	if err != nil || len(reply.Claims) != 1 || reply.Claims[0].State != lockkeeper.Held {
		t.Errorf("a claim of a path whose holder expired: %+v, %v", reply, err)
	}
}
