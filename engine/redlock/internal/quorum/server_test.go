package quorum

import (
	"fmt"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// A bench drives one server, with the TTL 100 and the epoch 1 for every session.
type bench struct {
	*testing.T
	s        *Server
	now      Micros
	messages []Message
}

func newBench(t *testing.T) *bench { return &bench{T: t, s: NewServer(Limits{}), now: 1000} }

func (b *bench) do(want Outcome, r Request) Reply {
	b.Helper()
	if r.Epoch == 0 && r.Kind != Attach {
		r.Epoch = 1
	}
	reply, messages := b.s.Apply(b.now, r)
	b.messages = messages
	if reply.Outcome != want {
		b.Fatalf("%d of %s: outcome %d (%s), want %d", r.Kind, r.Session, reply.Outcome, reply.Text, want)
	}
	if err := b.s.Check(); err != nil {
		b.Fatal(err)
	}
	twin := b.s.Clone()
	if string(twin.AppendText(nil)) != string(b.s.AppendText(nil)) {
		b.Fatal("the clone differs")
	}
	return reply
}

func (b *bench) attach(session string, ttl Micros) {
	b.Helper()
	b.do(Done, Request{Kind: Attach, Session: session, Attach: AttachRequest{
		NewEpoch: 1, Nonce: session, TTL: ttl, To: "to " + session,
	}})
}

// claim makes claim id of the session on paths, and returns its state.
func (b *bench) claim(session string, id uint64, w WantRecord, paths ...string) ClaimState {
	b.Helper()
	w.Paths = paths
	return b.do(Done, Request{Kind: Claim, Session: session, ID: id, Want: w}).Claims[0]
}

func (b *bench) state(session string, id uint64) ClaimState {
	b.Helper()
	for _, c := range b.do(Done, Request{Kind: List, Only: session}).Listed[0].Claims {
		if c.ID == id {
			return c
		}
	}
	b.Fatalf("%s.%d is not known", session, id)
	return ClaimState{}
}

func (b *bench) expect(session string, id uint64, want string) {
	b.Helper()
	c := b.state(session, id)
	got := c.State.String()
	switch c.State {
	case lockkeeper.Held:
		got = fmt.Sprintf("held %d", c.Vote)
		if c.Ask != nil {
			got += fmt.Sprintf(" asked %d", c.Ask.End)
		}
		if c.Unsure != 0 {
			got += fmt.Sprintf(" unsure %d", c.Unsure)
		}
	case lockkeeper.Ended:
		got = c.Reason.String()
	}
	if got != want {
		b.Fatalf("%s.%d: %s, want %s", session, id, got, want)
	}
}

func take(priority int, after Micros) WantRecord {
	return WantRecord{Priority: priority, Steal: lockkeeper.Take, After: after}
}

func TestServerVotesInOrderOfTheQueue(t *testing.T) {
	b := newBench(t)
	for _, s := range []string{"a", "b", "c", "d"} {
		b.attach(s, 100)
	}
	b.claim("a", 1, WantRecord{Ticket: 1}, "x")
	b.claim("b", 1, WantRecord{Ticket: 3}, "x")
	b.claim("c", 1, WantRecord{Ticket: 2}, "x")
	if p := b.claim("d", 1, WantRecord{Ticket: 4, Priority: 1}, "x").Position; p != 1 {
		t.Errorf("the highest priority waits at %d", p)
	}
	for i, next := range []string{"d", "c", "b"} {
		holder := []string{"a", "d", "c"}[i]
		b.do(Done, Request{Kind: End, Session: holder, ID: 1, Reason: lockkeeper.Released})
		b.expect(next, 1, fmt.Sprintf("held %d", i+2))
		if i == 0 && (len(b.messages) != 0 || b.s.floor != 2) {
			t.Errorf("messages of a List: %v", b.messages)
		}
	}
}

func TestServerGivesAllPathsOrNone(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	b.attach("b", 100)
	b.claim("a", 1, WantRecord{Ticket: 1}, "y")
	b.claim("b", 1, WantRecord{Ticket: 2}, "x", "y")
	b.claim("a", 2, WantRecord{Ticket: 3}, "x")
	b.expect("a", 2, "waiting")
	b.do(Done, Request{Kind: End, Session: "a", ID: 1, Reason: lockkeeper.Released})
	if len(b.messages) != 1 || b.messages[0].To != "to b" || b.messages[0].Claim.Vote != 2 {
		t.Fatalf("messages %+v", b.messages)
	}
	b.expect("b", 1, "held 2")
	b.do(Done, Request{Kind: Leave, Session: "b"})
	b.expect("a", 2, "held 3")
}

func TestServerLetsSessionsExpire(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	b.attach("b", 300)
	b.claim("a", 1, WantRecord{}, "x")
	b.claim("b", 1, WantRecord{}, "x")
	b.now += 99
	b.expect("b", 1, "waiting")
	b.now++
	b.expect("b", 1, "held 2")
	b.do(NoSession, Request{Kind: Renew, Session: "a"})
	b.do(NoSession, Request{Kind: Claim, Session: "a", ID: 1, Want: WantRecord{Paths: []string{"x"}}})
}

func TestServerTakesOnlyAfterTheAsk(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	b.attach("b", 100)
	b.claim("a", 1, WantRecord{}, "x")
	if c := b.claim("b", 1, take(1, 30), "x"); !c.Asking || c.AskEnd != 1030 {
		t.Fatalf("state %+v", c)
	}
	b.expect("a", 1, "held 1 asked 1030")
	b.now = 1029
	b.expect("a", 1, "held 1 asked 1030")
	b.now = 1030
	b.expect("b", 1, "held 2 unsure 1100")
	b.expect("a", 1, "stolen")
}

func TestServerAcknowledgedAskLeavesNothingUnsure(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	b.attach("b", 100)
	b.claim("a", 1, WantRecord{}, "x")
	b.claim("b", 1, take(1, 30), "x")
	b.do(Done, Request{Kind: Ack, Session: "a", Acks: []AckRecord{{ID: 1, End: 1030}}})
	b.now = 1030
	b.expect("b", 1, "held 2")
}

func TestServerLateAckCountsForOneAsk(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	b.attach("b", 100)
	b.claim("a", 1, WantRecord{}, "x")
	b.claim("b", 1, take(1, 30), "x")
	b.do(Done, Request{Kind: End, Session: "b", ID: 1, Reason: lockkeeper.Cancelled})
	b.expect("a", 1, "held 1")
	b.claim("b", 2, take(1, 30), "x")
	b.do(Done, Request{Kind: Ack, Session: "a", Acks: []AckRecord{{ID: 1, End: 1030}}})
	b.now = 1031
	b.expect("b", 2, "held 2 unsure 1100")
}

func TestServerHigherThiefReplacesTheWaitingOne(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	b.attach("b", 100)
	b.attach("c", 100)
	b.claim("a", 1, WantRecord{}, "x")
	b.claim("b", 1, take(1, 30), "x")
	b.now += 10
	b.claim("c", 1, take(2, 30), "x")
	b.expect("a", 1, "held 1 asked 1040")
	b.do(Done, Request{Kind: End, Session: "a", ID: 1, Reason: lockkeeper.Yielded})
	b.expect("c", 1, "held 2")
	b.expect("b", 1, "waiting")
}

func TestServerRefusesOldEpochs(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	b.claim("a", 1, WantRecord{}, "x")
	b.claim("a", 2, WantRecord{}, "y")
	second := Request{Kind: Attach, Session: "a", Epoch: 1, Attach: AttachRequest{
		NewEpoch: 5, Nonce: "n", TTL: 100, Named: []uint64{1},
	}}
	if r := b.do(Done, second); len(r.Claims) != 2 || r.Claims[0].Want == nil {
		t.Fatalf("claims %+v", r.Claims)
	}
	b.expect("a", 1, "held 1")
	b.expect("a", 2, "superseded")
	b.do(OtherEpoch, Request{Kind: Renew, Session: "a"})
	b.claim2(5, 3)
	b.do(Done, second)
	b.expect("a", 3, "held 3")
	second.Attach.Nonce = "other"
	if r := b.do(OtherEpoch, second); r.Epoch != 5 {
		t.Errorf("epoch %d", r.Epoch)
	}
}

// claim2 makes claim id of session a under an epoch, on the path z.
func (b *bench) claim2(epoch, id uint64) {
	b.Helper()
	b.do(Done, Request{Kind: Claim, Session: "a", Epoch: epoch, ID: id, Want: WantRecord{Paths: []string{"z"}}})
}

func TestServerShorterTTLDoesNotBringTheEndNearer(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	r := b.do(Done, Request{Kind: Attach, Session: "a", Epoch: 1, Attach: AttachRequest{NewEpoch: 2, TTL: 10}})
	if r.Until != 1100 {
		t.Fatalf("until %d", r.Until)
	}
	b.now = 1095
	if r := b.do(Done, Request{Kind: Renew, Session: "a", Epoch: 2}); r.Until != 1105 {
		t.Errorf("until %d", r.Until)
	}
	b.now = 500 // the clock goes back
	if r := b.do(Done, Request{Kind: Renew, Session: "a", Epoch: 2}); r.Until != 510 {
		t.Errorf("until %d", r.Until)
	}
}

func TestServerStampsOnlyTheVote(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	b.claim("a", 1, WantRecord{}, "x")
	stamp := func(vote, fence uint64) Request {
		return Request{Kind: Stamp, Session: "a", ID: 1, Vote: vote, Fence: fence}
	}
	b.do(Differs, stamp(2, 7))
	b.do(Done, stamp(1, 7))
	b.do(Done, stamp(1, 7))
	b.do(Differs, stamp(1, 6))
	b.do(Done, Request{Kind: Return, Session: "a", ID: 1, Vote: 1})
	b.expect("a", 1, "held 8")
	b.do(Differs, stamp(1, 9))
	b.do(Differs, Request{Kind: Return, Session: "a", ID: 1, Vote: 1})
}

func TestServerReturnFavoursTheRival(t *testing.T) {
	b := newBench(t)
	for i, s := range []string{"a", "b", "c"} {
		b.attach(s, 100)
		b.claim(s, 1, WantRecord{Ticket: uint64(i)}, "x")
	}
	b.do(Done, Request{Kind: Return, Session: "a", ID: 1, Vote: 1, Favour: "b.1"})
	b.expect("b", 1, "held 2")
	b.do(Done, Request{Kind: Return, Session: "b", ID: 1, Vote: 2})
	b.expect("a", 1, "held 3")
	b.do(Done, Request{Kind: Return, Session: "a", ID: 1, Vote: 3})
	b.expect("b", 1, "held 4")
}

// b waits behind a, and c behind both. Only b may get a vote that a returned for another claim.
func TestServerReturnLetsNobodyElsePass(t *testing.T) {
	b := newBench(t)
	for i, s := range []string{"a", "b", "c"} {
		b.attach(s, 100)
		b.claim(s, 1, WantRecord{Ticket: uint64(i)}, "x")
	}
	for _, favour := range []string{"c.1", "gone.1", "a.2"} {
		before := b.state("a", 1).Vote
		b.do(Done, Request{Kind: Return, Session: "a", ID: 1, Vote: before, Favour: favour})
		b.expect("a", 1, fmt.Sprint("held ", before+1))
	}
}

func TestServerEndBeforeItsClaim(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	b.do(Done, Request{Kind: End, Session: "a", ID: 1, Reason: lockkeeper.Cancelled})
	if c := b.claim("a", 1, WantRecord{}, "x"); c.Reason != lockkeeper.Cancelled {
		t.Errorf("state %+v", c)
	}
	b.do(NotKnown, Request{Kind: End, Session: "a", ID: 1, LowestOpen: 2})
	b.do(NotKnown, Request{Kind: Claim, Session: "a", ID: 1, Want: WantRecord{Paths: []string{"x"}}})
}

func TestServerKeepsAnEndThatTheSessionDidNotAskFor(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	b.claim("a", 1, WantRecord{}, "x")
	b.do(Done, Request{Kind: Revoke, Session: "a", ID: 1, Force: true, Label: lockkeeper.Label{As: "ops", Note: "disk"}})
	r := b.do(Done, Request{Kind: Renew, Session: "a", LowestOpen: 2})
	if len(r.Claims) != 1 || r.Claims[0].Text != "disk (by ops)" {
		t.Fatalf("claims %+v", r.Claims)
	}
	b.do(Done, Request{Kind: End, Session: "a", ID: 1, LowestOpen: 2})
	if r := b.do(Done, Request{Kind: Renew, Session: "a", LowestOpen: 2}); len(r.Claims) != 0 {
		t.Errorf("claims %+v", r.Claims)
	}
}

func TestServerTryLeavesNothingBehind(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	b.attach("b", 100)
	b.claim("a", 1, WantRecord{}, "x")
	w := take(1, 0)
	w.Try = true
	c := b.claim("b", 1, w, "x", "y")
	if c.Reason != lockkeeper.TimedOut || c.Position != 1 || len(c.Blockers) != 1 || c.Blockers[0].Ref.Session != "a" {
		t.Fatalf("state %+v", c)
	}
	b.expect("a", 1, "held 1")
	if b.s.paths["y"] != nil {
		t.Error("the refused claim left a path")
	}
}

func TestServerRestoresOnlyWhatIsMissing(t *testing.T) {
	b := newBench(t)
	restore := func(session string, fence, above uint64) Request {
		return Request{Kind: Restore, Session: session, Restore: RestoreRequest{TTL: 100, Claims: []RestoreClaim{
			{ID: 1, Want: WantRecord{Paths: []string{"x"}}, Fence: fence, Above: above},
		}}}
	}
	b.do(Done, restore("a", 5, 0))
	b.expect("a", 1, "held 5")
	if r := b.do(Done, restore("b", 9, 0)); len(r.Claims) != 0 {
		t.Fatalf("restored over a holder: %+v", r.Claims)
	}
	b.do(Done, Request{Kind: Leave, Session: "a"})
	b.do(Done, restore("a", 5, 5))
	b.expect("a", 1, "held 6")
	b.do(Done, Request{Kind: Leave, Session: "a"})
	if r := b.do(Done, restore("b", 5, 0)); len(r.Claims) != 0 {
		t.Fatalf("restored above the counter: %+v", r.Claims)
	}
	b.do(Done, Request{Kind: End, Session: "b", ID: 1, Reason: lockkeeper.Released})
	b.do(Done, restore("b", 50, 0))
	b.expect("b", 1, "released")
}

func TestServerLapsedVoteStandsUntilTheStatedEnd(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	b.attach("b", 200)
	b.claim("a", 1, WantRecord{}, "x")
	b.claim("b", 1, take(1, 30), "x")
	b.do(Done, Request{Kind: Lapse, Session: "a", ID: 1, Reason: lockkeeper.Stolen})
	b.do(Done, Request{Kind: End, Session: "b", ID: 1, Reason: lockkeeper.Cancelled})
	b.claim("b", 2, WantRecord{}, "x")
	b.do(Done, Request{Kind: Renew, Session: "a"})
	b.now = 1029
	b.expect("b", 2, "waiting")
	b.now = 1030
	b.expect("b", 2, "held 2")
	b.expect("a", 1, "stolen")
}

func TestServerRevokes(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	b.attach("b", 200)
	b.claim("a", 1, WantRecord{}, "x")
	b.claim("b", 1, WantRecord{}, "x")
	b.do(Done, Request{Kind: Revoke, Session: "a", ID: 1})
	b.now = 1050
	b.do(Done, Request{Kind: Revoke, Session: "a", ID: 1})
	b.do(Done, Request{Kind: Renew, Session: "a"})
	b.expect("a", 1, "held 1 asked 1100")
	b.now = 1100
	b.expect("a", 1, "revoked")
	b.expect("b", 1, "held 2 unsure 1150")
}

func TestServerAmendsThePriorityOnly(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	b.claim("a", 1, WantRecord{}, "x")
	b.claim("a", 2, WantRecord{Ticket: 1}, "x")
	b.claim("a", 3, WantRecord{Ticket: 2}, "x")
	if p := b.claim("a", 3, WantRecord{Ticket: 2, Revision: 1, Priority: 4}, "x").Position; p != 1 {
		t.Errorf("position %d", p)
	}
	r := Request{Kind: Claim, Session: "a", ID: 3, Want: WantRecord{Revision: 2, Paths: []string{"x"}}}
	b.do(Differs, r)
	r.Want.Priority, r.Want.Revision = 9, 1
	b.do(Differs, r)
	r.Want.Revision, r.Want.Paths = 2, []string{"x", "y"}
	b.do(Differs, r)
}

func TestServerIdlePathFoldsIntoTheFloor(t *testing.T) {
	b := newBench(t)
	b.attach("a", 100)
	b.claim("a", 1, WantRecord{}, "x")
	b.do(Done, Request{Kind: Stamp, Session: "a", ID: 1, Vote: 1, Fence: 8})
	b.do(Done, Request{Kind: End, Session: "a", ID: 1, Reason: lockkeeper.Released})
	b.s.ForgetIdle()
	if len(b.s.paths) != 0 {
		t.Fatal("the path stays")
	}
	b.claim("a", 2, WantRecord{}, "x")
	b.expect("a", 2, "held 9")
}

func TestServerHeedsItsLimits(t *testing.T) {
	b := newBench(t)
	b.s = NewServer(Limits{Sessions: 1, Claims: 1})
	b.attach("a", 100)
	b.do(Full, Request{Kind: Attach, Session: "b", Attach: AttachRequest{NewEpoch: 1, TTL: 100}})
	b.claim("a", 1, WantRecord{}, "x")
	b.do(Full, Request{Kind: Claim, Session: "a", ID: 2, Want: WantRecord{Paths: []string{"x"}}})
	b.do(Full, Request{Kind: End, Session: "a", ID: 2})
}
