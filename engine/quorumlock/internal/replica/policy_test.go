package replica

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

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
	if d.open[c.Session.ID]++; d.open[c.Session.ID] > 2 && by.Name != "" && d.world != nil {
		d.world.faultf("session %s was permitted %d times, and the network doubles messages once", c.Session.ID,
			d.open[c.Session.ID])
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

// receive brings a call of node 2.
func (l *lone) receive(call CallID, by Caller, c table.Command) []Message {
	l.Helper()
	m := Message{From: 2, To: 1, Kind: kindCall, Incarnation: 7, Call: call, Attempt: 1, Caller: by}
	m.Request = appendRequest(nil, l.rules, &request{command: c})
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
		sends[0].Refusal.index != l.Status().Applied || sends[0].Text != "for ci does not name eve" {
		t.Fatalf("sends %+v, want a denial", sends)
	}
	l.receive(2, Caller{Name: "ci"}, attach("ci:s"))
	for _, s := range l.receive(1, Caller{Name: "ci"}, attach("eve:s")) { // a late copy, whatever node made it
		t.Errorf("a copy of a denied call is answered by %+v", s)
	}
	l.sync()
	if l.Table().Open("eve:s") || !l.Table().Open("ci:s") {
		t.Errorf("sessions: eve %v, ci %v, want that of ci", l.Table().Open("eve:s"), l.Table().Open("ci:s"))
	}
	denied := (*records)[len(*records)-1]
	if !denied.Denied || denied.Index == 0 || denied.Caller != (Caller{"eve", "10.0.0.9:5"}) ||
		denied.Command.Session.ID != "eve:s" || !errors.Is(denied.Err, lockkeeper.ErrDenied) {
		t.Errorf("the audit has %+v", denied)
	}
}

// Calls that were queued with a change of the policy, and after it, are decided by the new one.
func TestPolicyCountsFromItsEntryOn(t *testing.T) {
	l, _ := ruled(t, "for ci")
	var before, after []CallID
	for i := range maxInFlight + 2 { // the last ones stay in the queue
		before = append(before, l.callAs("ci", attach(fmt.Sprint("ci:before", i))))
	}
	put := l.setPolicy("for nobody")
	for i := range 3 {
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

// A denial waits until the node has all entries that may have a copy of the call.
func TestDenialWaitsForEarlierEntries(t *testing.T) {
	for _, made := range []bool{false, true} {
		l, _ := ruled(t, "for ci")
		id := l.callAs("ci", attach("ci:s"))
		denial := Message{
			From: 1, To: 1, Kind: kindDenied, Incarnation: l.config.Incarnation, Call: id, Attempt: 1,
			Refusal: refusal{index: l.applied + 1, code: 1},
		}
		if !made {
			denial.Refusal.index = l.applied
		}
		l.receiveRefusal(&denial)
		l.settle()
		l.collect()
		if _, answered := l.answers[id]; answered == made {
			t.Errorf("an entry may have it: %v, answered at once: %v", made, answered)
		}
		l.sync()
		if a := l.answers[id]; errors.Is(a.Err, lockkeeper.ErrDenied) == made {
			t.Errorf("an entry has it: %v, the answer is %+v", made, a)
		}
	}
}

func TestDenialsAreReadAsTheyAreWritten(t *testing.T) {
	for i := range refusals {
		want := refusals[i]
		want.Path, want.Detail = "a/b", "why"
		x, text := refusalOf(5, &want)
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
