package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// Of two attaches the later one has the route, in whatever order their answers come. A sweep removes
// the sessions that have ended, and only those.
func TestLaterAttachHasTheRoute(t *testing.T) {
	var rs routes
	start := time.Now()
	attached := func(session string, epoch uint64, ttl time.Duration) *route {
		r := new(route)
		r.conn.Store(new(conn))
		rs.attached(owned("ci", session), r, &lockkeeper.Lease{Key: lockkeeper.Key{Session: session, Epoch: epoch}, TTL: ttl})
		return r
	}
	has := func(session string, want *route) bool {
		a := rs.sessions.Get(owned("ci", session))
		return a != nil && a.Own == want
	}
	later := attached("a", 2, time.Hour)
	attached("a", 1, time.Hour)
	if !has("a", later) {
		t.Error("an older attach has the route")
	}
	rs.ended("ci", lockkeeper.Key{Session: "a", Epoch: 1})
	rs.ended("", lockkeeper.Key{Session: "a", Epoch: 2})
	if !has("a", later) {
		t.Error("the end of another attach took the route")
	}
	attached("b", 3, time.Second)
	for _, c := range []struct {
		after time.Duration
		left  int
	}{{time.Second, 2}, {sweepTime, 2}, {sweepTime + 2*time.Second, 1}, {time.Hour, 1}, {2 * time.Hour, 0}} {
		if rs.sweep(start.Add(c.after)); rs.count() != c.left {
			t.Errorf("%d routes are left after %s, want %d", rs.count(), c.after, c.left)
		}
	}
	attached("c", 4, time.Hour)
	if rs.ended("ci", lockkeeper.Key{Session: "c", Epoch: 4}); rs.count() != 0 {
		t.Error("a route is left of a session that has ended")
	}
}

// A renewal that is read late, from a connection that its client has left for another one, takes hints
// from that one only while the former connection lives; a replayed renewal on a new connection, only
// until the client renews.
func TestLateRenewalGivesRouteBack(t *testing.T) {
	_, address := startMemory(t)
	former, p, other := greeted(t, address), greeted(t, address), greeted(t, address)
	epoch, others := former.attach("ann"), other.attach("bob")
	other.held("bob", others, 1, "db")
	former.waiting("ann", epoch, 1, "db")
	renew := func(p *peer) {
		t.Helper()
		if m := p.answered(p.ask(&wire.Request{Key: &wire.Key{Session: "ann", Epoch: epoch},
			Renew: true})); m.GetError() != nil {
			t.Fatal(m.GetError().Read())
		}
	}
	renew(p)
	renew(former) // as if it had waited there for long
	other.release("bob", others, 1)
	former.granted("ann", 1)
	former.net.Close()
	p.until("waiting for the news that something was missed", func() bool { return p.missed })
	p.release("ann", epoch, 1)

	p.held("ann", epoch, 2, "db")
	other.waiting("bob", others, 2, "db")
	echo := greeted(t, address)
	again := echo.answered(echo.ask(&wire.Request{Key: &wire.Key{Session: "bob", Epoch: others}, Renew: true}))
	if again.GetError() != nil {
		t.Fatal(again.GetError().Read())
	}
	if m := other.answered(other.ask(&wire.Request{Key: &wire.Key{Session: "bob", Epoch: others},
		Renew: true})); m.GetError() != nil {
		t.Fatal(m.GetError().Read())
	}
	p.release("ann", epoch, 2)
	other.granted("bob", 2)
}

// A lease with many claims is sent in pieces, all but the last marked more.
func TestLargeLeaseIsSentInPieces(t *testing.T) {
	_, address := startMemory(t)
	p := greeted(t, address)
	epoch := p.attach("many")
	const many = 3000
	note := fmt.Sprintf("%0500d", 7)
	for id := range uint64(many) {
		m := p.answered(p.ask(&wire.Request{Key: &wire.Key{Session: "many", Epoch: epoch}, Claim: &wire.Want{
			Id: id + 1, Targets: []*wire.Target{{Path: fmt.Sprint("p/", id), Mode: wire.Mode_MODE_EXCLUSIVE}}, Note: note,
		}}))
		if m.GetStatus().GetState() != wire.State_STATE_HELD {
			t.Fatal(m)
		}
	}
	id := p.ask(&wire.Request{Key: &wire.Key{Session: "many", Epoch: epoch}, Renew: true})
	claims, pieces := 0, 0
	for more := true; more; {
		f, err := p.frame()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range f.GetReplies() {
			if m.GetCall() == id {
				claims += len(m.GetLease().GetClaims())
				pieces++
				more = m.GetMore()
			}
		}
	}
	if claims != many || pieces < 10 {
		t.Errorf("%d claims come in %d pieces", claims, pieces)
	}
}
