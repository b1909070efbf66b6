package replica

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/table"
)

const (
	earlier = table.RulesVersion
	later   = earlier + 1
)

// Two programs: the later one has other rules, too.
var (
	earlierRules = Rules{Oldest: earlier, Latest: earlier, Step: stepToy}
	laterRules   = Rules{Oldest: earlier, Latest: later, Step: stepToy}
)

// stepToy steps a table under toy rules: under the later ones a renewal takes a nanosecond, so that a
// node that steps one under the wrong version has another table.
func stepToy(version uint64, t *table.Table, c *table.Command) (table.Reply, error) {
	if version == later && c.Op == table.Renew {
		slow := *c
		slow.At++
		return t.Step(&slow)
	}
	return t.Step(c)
}

// upgrade restarts the process with the later program, after d.
func (m *machine) upgrade(d time.Duration) {
	m.tracef("%s gets the later program", m.name)
	m.program = laterRules
	m.crash(false)
	life := m.life
	m.after(d, func() {
		if m.replica == nil && m.life == life {
			m.start()
		}
	})
}

// upgradeAll upgrades all machines within d, in any order.
func (w *world) upgradeAll(d time.Duration) {
	for _, m := range w.machines {
		w.after(w.between(0, d), func() { m.upgrade(w.between(0, 2*time.Second)) })
	}
}

// raised notes under which members the rules of the cluster rose.
func (j *judge) raised(m *machine) {
	j.saw("rules raised")
	if m.replica != nil && j.raisedWith == nil {
		j.raisedWith = m.replica.members()
		j.tracef("%s raises the rules, the members are %d", m.name, j.raisedWith)
	}
}

// mayLackRules reports whether a machine may stop because it does not have the rules of the log: it
// was no member when they rose.
func (j *judge) mayLackRules(m *machine, err error) bool {
	return errors.Is(err, ErrVersion) && m.program.Latest < laterRules.Latest && !slices.Contains(j.raisedWith, m.id)
}

// The upgrade of one node after the other costs no session, and no node has another table.
func TestRollingUpgradeLosesNoLock(t *testing.T) {
	p := profile{machines: 3, voters: 3, clients: 6, program: earlierRules, ttl: 15 * time.Second}
	w := newWorld(t, p, testmode.Seed(t))
	w.run(10 * time.Second)
	for _, m := range w.machines {
		for _, other := range w.machines {
			if rules := other.replica.Status().Rules; rules != earlier {
				t.Errorf("%s has rules %d before %s has the later program", other.name, rules, m.name)
			}
		}
		m.upgrade(500 * time.Millisecond)
		w.run(10 * time.Second)
	}
	hashes := w.seen["hash stated"]
	w.run(20 * time.Second)
	for _, m := range w.machines {
		if rules := m.replica.Status().Rules; rules != later {
			t.Errorf("%s has rules %d after all have the later program", m.name, rules)
		}
	}
	for what, n := range w.seen { // order does not matter: each by itself
		if strings.HasPrefix(what, "session lost") {
			t.Errorf("%s: %d times", what, n)
		}
	}
	if w.seen["hash stated"] <= hashes || hashes == 0 {
		t.Errorf("%d hashes were compared before the rules rose, %d after", hashes, w.seen["hash stated"]-hashes)
	}
	for _, fault := range w.judge.verdict() {
		t.Error(fault)
	}
}

// Machines get the later program in any order, while all other faults happen.
func TestSimulationOfUpgrades(t *testing.T) {
	p := usual
	p.program = earlierRules
	seen := simulateMany(t, p, testmode.Pick(5, 500))
	if seen["rules raised"] == 0 && !t.Failed() {
		t.Error("the rules never rose")
	}
}

func TestRulesRiseOnlyAfterAllMembersHaveReported(t *testing.T) {
	w := newWorld(t, profile{machines: 4, voters: 3, clients: 3, learners: true, program: earlierRules}, 1)
	w.run(10 * time.Second)
	if learners := w.leader().replica.Status().Learners; len(learners) != 1 {
		t.Fatalf("the learners are %v, want one", learners)
	}
	for _, m := range w.machines[:3] {
		m.upgrade(0)
		w.run(5 * time.Second)
	}
	if rules := w.leader().replica.Status().Rules; rules != earlier {
		t.Errorf("rules %d, and the learner does not have them", rules)
	}
	w.machines[3].upgrade(0)
	w.run(10 * time.Second)
	for _, m := range w.machines {
		if s := m.replica.Status(); s.Rules != later || s.Failed != nil {
			t.Errorf("%s has rules %d: %v", m.name, s.Rules, s.Failed)
		}
	}
	for _, fault := range w.judge.verdict() {
		t.Error(fault)
	}
}

func TestReportOfARemovedNodeIsForgotten(t *testing.T) {
	w := newWorld(t, profile{machines: 4, voters: 3, clients: 3}, 1)
	w.run(10 * time.Second)
	m := w.machines[0]
	if w.leader() == m {
		m = w.machines[2]
	}
	former := reportKey(m.id)
	if leader := w.leader().replica; len(leader.Setting(former).Value) == 0 {
		t.Fatalf("node %d has not reported: %v", m.id, leader.Settings("rules"))
	}
	w.loseDisk(m)
	w.run(20 * time.Second)
	leader := w.leader().replica
	if reports := leader.Settings(reportPrefix); len(leader.Setting(former).Value) > 0 || len(reports) < 3 {
		t.Errorf("after its disk was lost there are the reports %v", reports)
	}
}

func TestNodeWithoutTheRulesOfTheLogStops(t *testing.T) {
	state, err := Found(Beginning{Voters: []uint64{1, 2}, Rules: later})
	if err != nil {
		t.Fatal(err)
	}
	c := loneConfig(1)
	c.Rules = earlierRules
	if _, err := New(c, state, 0); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "run a later version") {
		t.Errorf("a program with earlier rules starts: %v", err)
	}
	c.Rules.Oldest, c.Rules.Latest = later+1, later+2
	if _, err := New(c, state, 0); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "on all nodes first") {
		t.Errorf("a program with later rules starts: %v", err)
	}

	c.Rules = earlierRules
	r, err := New(c, State{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Receive(0, snapshotFrom(2, state)); !errors.Is(err, ErrVersion) {
		t.Errorf("a snapshot under later rules: %v", err)
	}
	if err := r.Status().Failed; !errors.Is(err, ErrStopped) || !errors.Is(err, ErrVersion) {
		t.Errorf("it goes on: %v", err)
	}
}

func TestEntriesOfAnotherFormStopTheNode(t *testing.T) {
	l := newLone(t)
	l.elect()
	pass := request{command: table.Command{Op: table.Pass}}
	for name, data := range map[string][]byte{
		"another form":        {form + 1, entryBatch},
		"another kind":        {form, 9},
		"another request":     {form, entryBatch, 0, 0, 0, 9},
		"another record form": {form, entryBatch, 0, 0, 0, requestCommand, 99, earlier},
		"later rules":         appendCall(newEntry(entryBatch), origin{}, later, &pass),
		"cut":                 {form},
	} {
		l.start(2)
		l.elect()
		if l.node.Propose(data) != nil {
			t.Fatalf("%s: no proposal", name)
		}
		before := l.state.clone()
		l.ticks(2)
		l.sync()
		if err := l.Status().Failed; !errors.Is(err, ErrStopped) {
			t.Errorf("%s: the node goes on: %v", name, err)
		}
		l.state = before
	}
}

func TestNobodySetsTheRulesByHand(t *testing.T) {
	l := newLone(t)
	l.elect()
	for _, key := range []string{rulesKey, reportKey(1), reportKey(7)} {
		if a := l.put(key, "9", l.Setting(key).Revision); !errors.Is(a.Err, lockkeeper.ErrInvalid) {
			t.Errorf("put %s: %v", key, a.Err)
		}
		if _, err := Found(Beginning{Voters: []uint64{1}, Settings: []Setting{{Key: key, Value: []byte("9")}}}); err == nil {
			t.Errorf("a cluster begins with %s", key)
		}
	}
	for value, key := range map[string]string{
		"9": rulesKey, string(versionText(earlier)): rulesKey, "1": rulesKey, "x": rulesKey,
		"0" + string(versionText(earlier)): reportKey(1), "0": reportKey(1), "5": reportKey(7),
	} {
		s := l.Setting(key)
		s.Value = []byte(value)
		if err := l.refuseOwn(&s); err == nil {
			t.Errorf("all nodes make %s = %s", key, value)
		}
	}
	foreign := Setting{Key: reportKey(3), Value: versionText(earlier)}
	if l.refuseForeign(2, &request{setting: &foreign}) == nil {
		t.Error("node 2 reports for node 3")
	}
}
