package replica

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/table"
)

// toyRights decide under a toy policy: its text names those who may make calls, and callers without a
// name may always.
type toyRights struct {
	policy string
	world  *world
	open   map[string]int // permitted commands on their way, by their session
}

func (d *toyRights) Permit(_ *table.Table, by Caller, c *table.Command) error {
	if by.Name != "" && !strings.Contains(d.policy, by.Name) {
		return &lockkeeper.Error{Err: lockkeeper.ErrDenied, Detail: d.policy + " does not name " + by.Name, Path: "a"}
	}
	if d.open[c.Session.ID]++; d.open[c.Session.ID] > 1 && by.Name != "" && d.world != nil {
		d.world.faultf("a leader decides twice about the one call of %s", c.Session.ID)
	}
	return nil
}

func (d *toyRights) Dropped(c *table.Command) {
	if d.world != nil {
		d.world.saw("permitted call dropped")
	}
	d.arrived(c)
}

func (d *toyRights) Applied(_ *table.Table, c *table.Command) { d.arrived(c) }

func (d *toyRights) arrived(c *table.Command) {
	if !strings.HasPrefix(c.Session.ID, "guest") {
		return
	}
	if d.open[c.Session.ID]--; d.open[c.Session.ID] < 0 && d.world != nil {
		d.world.faultf("session %s arrives, and was not permitted under %q", c.Session.ID, d.policy)
	}
}

// guests are what a world with a policy knows: each guest makes one call, to attach a session of its
// own.
type guests struct {
	n      int
	denied map[string]bool
	made   map[string]uint64 // index of the entry
}

// host changes the policy now and then, and lets guests call at any machine.
func (w *world) host() {
	w.guests = &guests{denied: make(map[string]bool), made: make(map[string]uint64)}
	w.after(time.Second, w.changePolicy)
	for range 3 {
		w.after(w.between(0, time.Second), w.invite)
	}
}

func (w *world) changePolicy() {
	w.after(w.between(50*time.Millisecond, time.Second), w.changePolicy)
	m := w.machines[w.random.IntN(len(w.machines))]
	m.input(0, func(r *Replica) {
		s := r.Setting(PolicyKey)
		s.Value = []byte("for guest")
		if w.chance(0.5) {
			s.Value = []byte("for nobody")
		}
		m.calls[r.Put(m.clock.read(), s)] = func(a Answer) {
			if a.Err == nil {
				w.saw("policy changed")
			}
		}
	})
}

func (w *world) invite() {
	w.after(w.between(time.Millisecond, 200*time.Millisecond), w.invite)
	w.guests.n++
	id := fmt.Sprintf("guest%d", w.guests.n)
	m := w.machines[w.random.IntN(len(w.machines))]
	m.input(0, func(r *Replica) {
		m.calls[r.CallAs(m.clock.read(), Caller{Name: "guest"}, attach(id))] = func(a Answer) {
			switch {
			case errors.Is(a.Err, lockkeeper.ErrDenied):
				w.saw("guest denied")
				w.guests.denied[id] = true
				if at := w.guests.made[id]; at != 0 {
					w.faultf("%s is denied, and entry %d has its call", id, at)
				}
			case a.Err == nil:
				w.saw("guest served")
			}
		}
	})
}

// checkGuest checks a command of a guest that a machine has applied.
func (j *judge) checkGuest(m *machine, index uint64, c *table.Command) {
	if j.guests == nil || !strings.HasPrefix(c.Session.ID, "guest") {
		return
	}
	if at := j.guests.made[c.Session.ID]; at != 0 && at != index {
		j.faultf("entries %d and %d have the one call of %s", at, index, c.Session.ID)
	}
	j.guests.made[c.Session.ID] = index
	if j.guests.denied[c.Session.ID] {
		j.faultf("%s was denied, and entry %d has its call", c.Session.ID, index)
	}
	if m.replica == nil {
		return // it starts
	}
	if policy := m.replica.Setting(PolicyKey); len(policy.Value) > 0 && !strings.Contains(string(policy.Value), "guest") {
		j.faultf("entry %d has a call of %s under the policy %q", index, c.Session.ID, policy.Value)
	}
}

// Under a policy that changes all the time, no denied call is ever made, each call has one answer, and
// a policy counts from its entry in the log on.
func TestSimulationOfPolicies(t *testing.T) {
	p := usual
	p.policies = true
	seen := simulateMany(t, p, testmode.Pick(4, 1500))
	for _, what := range []string{"policy changed", "guest denied", "guest served"} {
		if seen[what] == 0 && !t.Failed() {
			t.Errorf("%q never happened", what)
		}
	}
}

// All calls arrive twice, many of them at a leader that was elected meanwhile. None is decided a second time.
func TestSimulationOfLateCopies(t *testing.T) {
	p := usual
	p.policies, p.lateCopies = true, true
	p.only = []string{"crash of the leader", "pause of the leader", "the leader is cut off", "bad network"}
	simulateMany(t, p, testmode.Pick(3, 300))
}

// ruled returns a lone ready leader with that policy, and what its audit got.
func ruled(t *testing.T, policy string) (*lone, *[]Record) {
	l, records := newLone(t), new([]Record)
	l.elect()
	l.config.Decider = func(policy []byte) Decider {
		return &toyRights{policy: string(policy), open: make(map[string]int)}
	}
	l.config.Audit = func(r Record) { *records = append(*records, r) }
	l.setPolicy(policy)
	l.sync()
	return l, records
}

func (l *lone) setPolicy(policy string) CallID {
	s := l.Setting(PolicyKey)
	s.Value = []byte(policy)
	id := l.Put(l.clock, s)
	l.collect()
	return id
}

func (l *lone) callAs(name string, c table.Command) CallID {
	id := l.CallAs(l.clock, Caller{Name: name, From: "10.0.0.9:5"}, c)
	l.collect()
	return id
}

// receive brings a call of node 2 to this leader.
func (l *lone) receive(call CallID, by Caller, c table.Command) []Message {
	l.Helper()
	return l.receiveCopy(l.sentBy2(call, by, c))
}

// sentBy2 returns a call of node 2, sent to this leader.
func (l *lone) sentBy2(call CallID, by Caller, c table.Command) Message {
	return Message{
		From: 2, To: 1, Kind: kindCall, Incarnation: 7, Call: call, Attempt: uint64(call), Term: l.lead.term, Caller: by,
		Request: appendRequest(nil, l.rules, &request{command: c}),
	}
}

// receiveCopy brings a copy of a message.
func (l *lone) receiveCopy(m Message) []Message {
	l.Helper()
	if err := l.Receive(l.clock, m); err != nil {
		l.Fatal(err)
	}
	out := l.Output()
	l.unsaved = append(l.unsaved, out.Writes...)
	return out.Sends
}

func TestLeaderDecidesAboutCallsOfFollowers(t *testing.T) {
	l, records := ruled(t, "for ci")
	sends := l.receive(1, Caller{Name: "eve", From: "10.0.0.9:5"}, attach("eve:s"))
	if len(sends) != 1 || sends[0].Kind != kindDenied || sends[0].To != 2 || sends[0].Call != 1 ||
		sends[0].Text != "for ci does not name eve" {
		t.Fatalf("sends %+v, want a denial", sends)
	}
	l.receive(2, Caller{Name: "ci"}, attach("ci:s"))
	l.sync()
	if l.Table().Open("eve:s") || !l.Table().Open("ci:s") {
		t.Errorf("sessions: eve %v, ci %v, want that of ci", l.Table().Open("eve:s"), l.Table().Open("ci:s"))
	}
	denied := (*records)[len(*records)-1]
	if !denied.Denied || denied.Index == 0 || denied.Caller != (Caller{Name: "eve", From: "10.0.0.9:5"}) ||
		denied.Command.Session.ID != "eve:s" || !errors.Is(denied.Err, lockkeeper.ErrDenied) {
		t.Errorf("the audit has %+v", denied)
	}
}

// A node that has not noticed that the policy is gone leaves decisions to a leader that decides nothing any more.
func TestUndecidedCallsAreRefusedWithoutAPolicy(t *testing.T) {
	l, records := ruled(t, "for ci")
	late := Caller{Name: "eve", Undecided: true}
	l.receive(1, Caller{Name: "ci", Undecided: true}, attach("ci:s"))
	l.sync()
	l.setPolicy("")
	l.sync()
	before := len(*records)
	freeze := table.Command{Op: table.Claim, Key: lockkeeper.Key{Session: "eve:s", Epoch: 1}}
	freeze.Want.Freeze = time.Hour
	for i, c := range []table.Command{attach("eve:s"), freeze} {
		sends := l.receive(CallID(i+2), late, c)
		if len(sends) != 1 || sends[0].Kind != kindDenied ||
			!errors.Is(sends[0].Refusal.error(sends[0].Text), lockkeeper.ErrUnavailable) {
			t.Errorf("%s: sends %+v, want a refusal", c.Op, sends)
		}
	}
	renew := table.Command{Op: table.Renew, Key: lockkeeper.Key{Session: "ci:s", Epoch: 1}}
	if sends := l.receive(4, Caller{Name: "ci", Undecided: true}, renew); len(sends) > 0 && sends[0].Kind == kindDenied {
		t.Errorf("a renewal is refused: %+v", sends)
	}
	l.clock += batchTime
	l.receive(5, Caller{Name: "eve"}, attach("eve:s"))
	l.sync()
	if !l.Table().Open("eve:s") || len(*records) != before {
		t.Errorf("a call that its node has decided is made: %v; records %+v", l.Table().Open("eve:s"), (*records)[before:])
	}
}

// The record of an operator's act says who made it, and from where.
func TestActsAreRecordedWithTheirCallers(t *testing.T) {
	l, records := ruled(t, "for ops")
	ops := Caller{Name: "ops", From: "10.0.0.9:5"}
	l.receive(1, ops, attach("ops:s"))
	l.sync()
	thaw := lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: "db"} // which is refused: db is not frozen
	l.clock += batchTime
	l.receive(2, ops, table.Command{Op: table.End, Key: lockkeeper.Key{Session: "ops:s", Epoch: 1}, Ending: thaw})
	l.sync()
	act := (*records)[len(*records)-1]
	if act.Denied || act.Caller != ops || act.Command.Ending.Kind != lockkeeper.Thaw || act.Err == nil {
		t.Errorf("the audit has %+v", act)
	}
	if len(l.lead.acts) > 0 {
		t.Errorf("%d acts are kept", len(l.lead.acts))
	}
}

// Calls that were queued with a change of the policy, and after it, are decided by the new one.
func TestPolicyCountsFromItsEntryOn(t *testing.T) {
	l, _ := ruled(t, "for ci")
	var before, after []CallID
	for i := range 3 {
		l.clock += batchTime // so that it may propose an entry for each call
		before = append(before, l.callAs("ci", attach(fmt.Sprint("ci:before", i))))
	}
	l.clock += batchTime
	put := l.setPolicy("for nobody")
	for i := range 3 {
		l.clock += batchTime
		after = append(after, l.callAs("ci", attach(fmt.Sprint("ci:after", i))))
	}
	l.sync()
	if err := l.answers[put].Err; err != nil {
		t.Fatal(err)
	}
	for _, id := range before {
		if a := l.answers[id]; a.Call == 0 || a.Err != nil {
			t.Errorf("a call before the change: %+v", a)
		}
	}
	for i, id := range after {
		a := l.answers[id]
		if !errors.Is(a.Err, lockkeeper.ErrDenied) || l.Table().Open(fmt.Sprint("ci:after", i)) {
			t.Errorf("a call after the change: %+v, made %v", a, l.Table().Open(fmt.Sprint("ci:after", i)))
		}
	}
}

// The next leader, here the next process, decides by the policy that the log has.
func TestNextLeaderHasThePolicy(t *testing.T) {
	l, _ := ruled(t, "for ci")
	l.start(2)
	served, denied := l.callAs("ci", attach("ci:s")), l.callAs("eve", attach("eve:s"))
	l.elect()
	if err := l.answers[served].Err; err != nil {
		t.Errorf("ci: %v", err)
	}
	if err := l.answers[denied].Err; !errors.Is(err, lockkeeper.ErrDenied) {
		t.Errorf("eve: %v", err)
	}
	l.lead.decider, l.config.Decider = nil, nil
	denied = l.callAs("ci", attach("ci:s"))
	if err := l.answers[denied].Err; !errors.Is(err, lockkeeper.ErrDenied) {
		t.Errorf("by a program that can't decide: %v", err)
	}
}

// eveAtLast returns a leader that has denied n calls of eve, and permits them by now; and the first of
// these calls.
func eveAtLast(t *testing.T, n int) (*lone, Message) {
	l, _ := ruled(t, "for ci")
	first := l.sentBy2(1, Caller{Name: "eve"}, attach("eve:1"))
	for i := range n {
		call := CallID(i + 1)
		sends := l.receive(call, Caller{Name: "eve"}, attach(fmt.Sprint("eve:", call)))
		if len(sends) != 1 || sends[0].Kind != kindDenied {
			t.Fatalf("call %d: sends %+v, want a denial", call, sends)
		}
	}
	l.setPolicy("for eve")
	l.sync()
	return l, first
}

// However late a copy of a denied call arrives, and whatever the policy is then, it is ignored.
func TestLateCopyOfADeniedCallIsNotMade(t *testing.T) {
	for _, denials := range []int{1, windowSize, 3 * windowSize} {
		l, copied := eveAtLast(t, denials)
		for _, s := range l.receiveCopy(copied) {
			t.Errorf("after %d denials: a copy is answered by %+v", denials, s)
		}
		l.sync()
		if l.Table().Open("eve:1") {
			t.Errorf("after %d denials: the denied call is made", denials)
		}
		l.receive(CallID(denials+1), Caller{Name: "eve"}, attach("eve:new"))
		l.sync()
		if !l.Table().Open("eve:new") {
			t.Errorf("after %d denials: a new call is not made", denials)
		}
	}
}

// After a restart a node does not know the calls that it had as a leader: it takes no copy of them, and does
// not say that it does not have them.
func TestRestartedNodeIgnoresCopiesOfDeniedCalls(t *testing.T) {
	l, copied := eveAtLast(t, 1)
	l.start(2)
	l.elect()
	for _, s := range l.receiveCopy(copied) {
		t.Errorf("a copy is answered by %+v", s)
	}
	l.sync()
	if l.Table().Open("eve:1") {
		t.Error("the denied call is made")
	}
}

// A node that no longer leads refuses the calls of its former term that it never had. A copy of one that
// it had may not be refused, for the entry with the call may still be applied.
func TestFormerLeaderRefusesOnlyWhatItNeverHad(t *testing.T) {
	l := newLone(t)
	l.elect()
	had, never := l.sentBy2(1, Caller{}, attach("a")), l.sentBy2(2, Caller{}, attach("b"))
	if sends := l.receiveCopy(had); len(sends) > 0 {
		t.Fatalf("the leader answers a call at once by %+v", sends)
	}
	heartbeat := &pb.Message{
		Type: pb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(l.lead.term + 1),
	}
	if l.receiveCopy(Message{From: 2, To: 1, Raft: heartbeat}); l.lead.leading {
		t.Fatal("it still leads")
	}
	if sends := l.receiveCopy(never); len(sends) != 1 || sends[0].Kind != kindNotLeading || sends[0].Call != 2 {
		t.Errorf("a call that it never had is answered by %+v", sends)
	}
	for _, copied := range []Message{had, never} {
		if sends := l.receiveCopy(copied); len(sends) > 0 {
			t.Errorf("a copy of call %d is answered by %+v", copied.Call, sends)
		}
	}
}

// A leader makes each call of other nodes once. Only calls of a later process may have numbers that
// arrived before.
func TestLeaderReceivesEachCallOnce(t *testing.T) {
	a, random := make(arrivals), testmode.Rand(t)
	before := make(map[[2]uint64]bool)
	var highest [3]uint64
	for range 20_000 {
		incarnation := random.Uint64N(3)
		number := 1 + highest[incarnation] + random.Uint64N(50)
		if random.IntN(2) == 0 {
			number -= min(number-1, random.Uint64N(2*windowSize))
		}
		late := number+windowSize <= highest[incarnation]
		key := [2]uint64{incarnation, number}
		if first := a.of(2, incarnation).first(number); first != (!late && !before[key]) {
			t.Fatalf("number %d of process %d, highest %d, arrived before %v: first is %v", number, incarnation,
				highest[incarnation], before[key], first)
		}
		before[key], highest[incarnation] = true, max(highest[incarnation], number)
	}
	if w := a.of(2, 9); !w.first(1<<64-1) || w.first(1<<64-1) || w.first(1) {
		t.Error("the last number arrives once, and numbers far below it never again")
	}
	for incarnation := range uint64(2 * mostProcesses) {
		a.of(2, incarnation+10)
	}
	if len(a[2]) != mostProcesses || a.of(2, 2*mostProcesses+9) != a[2][mostProcesses-1] {
		t.Errorf("%d processes of a node are known, want the latest %d", len(a[2]), mostProcesses)
	}
}

func TestDenialsAreReadAsTheyAreWritten(t *testing.T) {
	for i := range refusals {
		want := refusals[i]
		want.Path, want.Detail = "a/b", "why"
		x, text := refusalOf(&want)
		m := Message{Kind: kindDenied, Incarnation: 3, Call: 1, Attempt: 1, Refusal: x, Text: text}
		b, _ := m.MarshalBinary()
		var got Message
		if err := got.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(got, m) {
			t.Fatalf("%+v was read as %+v, %v", m, got, err)
		}
		if err := got.Refusal.error(got.Text); !reflect.DeepEqual(err, error(&want)) {
			t.Errorf("%v became %v", &want, err)
		}
	}
	l, _ := ruled(t, "for ci")
	id := l.CallAs(l.clock, Caller{Name: strings.Repeat("x", MaxCaller+1)}, attach("s"))
	l.collect()
	if err := l.answers[id].Err; !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("a caller with a long name: %v", err)
	}
}
