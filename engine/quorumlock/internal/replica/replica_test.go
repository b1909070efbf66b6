package replica

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
	"github.com/lockkeeper/lockkeeper/table"
)

// A lone is the only node of its cluster, with a disk that the test syncs.
type lone struct {
	*testing.T
	*Replica
	clock   time.Duration
	state   State
	unsaved []Write
	answers map[CallID]Answer
	epochs  map[CallID]uint64 // of the table when the answer came
}

func newLone(t *testing.T) *lone {
	l := &lone{T: t, state: found(t, 1)}
	l.start(1)
	return l
}

// found returns what the first nodes of a cluster have on their disks.
func found(t testing.TB, ids ...uint64) State {
	t.Helper()
	s, err := Found(Beginning{Voters: ids, Settings: []Setting{{Key: "counter", Value: []byte("0")}}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const loneCallTimeout = 2 * time.Second // two election timeouts

func loneConfig(incarnation uint64) Config {
	c := (&machine{world: &world{}}).config()
	c.ID, c.Incarnation, c.Applied, c.Changed = 1, incarnation, nil, nil
	c.CallTimeout = loneCallTimeout
	return c
}

// start starts a process with what the disk has.
func (l *lone) start(incarnation uint64) {
	l.Helper()
	r, err := New(loneConfig(incarnation), l.state.clone(), l.clock)
	if err != nil {
		l.Fatal(err)
	}
	l.Replica, l.unsaved = r, nil
	l.answers, l.epochs = make(map[CallID]Answer), make(map[CallID]uint64)
	l.collect()
}

func (l *lone) collect() {
	out := l.Output()
	l.unsaved = append(l.unsaved, out.Writes...)
	for _, a := range out.Answers {
		if _, twice := l.answers[a.Call]; twice {
			l.Errorf("call %d is answered twice", a.Call)
		}
		l.answers[a.Call], l.epochs[a.Call] = a, l.Table().Counters().Epochs
	}
}

// sync makes all writes durable, and those that follow from it.
func (l *lone) sync() {
	for len(l.unsaved) > 0 {
		w := l.unsaved[0]
		l.unsaved = l.unsaved[1:]
		l.state.apply(&w)
		l.Persisted(l.clock, w.Number)
		l.collect()
	}
}

func (l *lone) ticks(n int) {
	for range n {
		l.clock += tick
		l.Tick(l.clock)
		l.collect()
	}
}

// elect lets the node become a ready leader.
func (l *lone) elect() {
	l.Helper()
	for range 40 {
		l.ticks(1)
		l.sync()
	}
	if !l.Status().Ready {
		l.Fatalf("the only node does not lead: %+v", l.Status())
	}
}

func (l *lone) call(c table.Command) CallID {
	id := l.Call(l.clock, c)
	l.collect()
	return id
}

func attach(id string) table.Command {
	return table.Command{Op: table.Attach, Session: lockkeeper.Session{ID: id, TTL: 10 * time.Second}}
}

func TestAnswerWaitsUntilItsEntryIsDurable(t *testing.T) {
	l := newLone(t)
	l.elect()
	id := l.call(attach("s"))
	l.ticks(5)
	if a, answered := l.answers[id]; answered {
		t.Fatalf("answered before anything is durable: %v", a)
	}
	l.sync()
	if a, answered := l.answers[id]; !answered || a.Err != nil || a.Reply.Lease.Key.Session != "s" {
		t.Fatalf("answer %v, %v", a, answered)
	}
}

func TestRestartedNodeHasWhatItAnswered(t *testing.T) {
	l := newLone(t)
	l.elect()
	for range 120 { // more than a snapshot
		l.call(attach("s"))
		l.sync()
	}
	before := l.Table().Counters()
	l.clock = 0 // the machine started, too
	l.start(2)
	l.elect()
	if !l.Table().Open("s") || l.Table().Now() < before.Now || l.Table().Counters().Epochs != before.Epochs {
		t.Errorf("counters %v, before the restart %v", l.Table().Counters(), before)
	}
}

// A node that restarts knows an older commit index than it has answered by. If it is the only voter,
// raft answers reads at once.
func TestReadOfTheOnlyVoterWaitsUntilItIsReady(t *testing.T) {
	l := newLone(t)
	l.elect()
	l.call(attach("s"))
	l.sync()
	l.state.HardState.Commit = new(uint64(1)) // the latest write of it was lost
	l.start(2)
	read := l.Read(l.clock)
	l.collect()
	l.elect()
	if a, answered := l.answers[read]; !answered || a.Err != nil || l.epochs[read] != 1 {
		t.Errorf("answered %v: %v; %d attaches were applied, want 1", answered, a.Err, l.epochs[read])
	}
}

func TestCancelledCallIsNotMade(t *testing.T) {
	l := newLone(t)
	unsent := l.call(attach("unsent"))
	l.Cancel(unsent)
	l.elect()
	for range maxInFlight {
		l.call(attach("s"))
	}
	queued := l.call(attach("queued"))
	l.Cancel(queued)
	l.sync()
	if len(l.answers) != maxInFlight || l.Table().Open("unsent") || l.Table().Open("queued") {
		t.Errorf("%d calls are answered, sessions were opened: %v %v; want %d, false, false", len(l.answers),
			l.Table().Open("unsent"), l.Table().Open("queued"), maxInFlight)
	}
}

// A process ends when its call is on the disk. The process after it counts its calls from 1, too.
func TestAnswerGoesToTheProcessThatCalled(t *testing.T) {
	l := newLone(t)
	l.elect()
	first := l.call(attach("first"))
	for _, w := range l.unsaved {
		l.state.apply(&w)
	}
	l.start(2)
	for l.calls.last+1 < first { // the replica itself has made calls before the first
		l.call(attach("another"))
	}
	second := l.call(attach("second"))
	l.elect()
	if first != second || !l.Table().Open("first") {
		t.Fatalf("calls %d and %d; the first was made: %v", first, second, l.Table().Open("first"))
	}
	if a := l.answers[second]; a.Err != nil || a.Reply.Lease.Key.Session != "second" {
		t.Errorf("the answer is %+v, want that of the second process", a)
	}
}

// The snapshot of the last checkpoint has a configuration without a node that was added since.
func TestAddedNodeGetsASnapshotThatHasIt(t *testing.T) {
	w := newWorld(t, profile{machines: 3, voters: 3, clients: 3}, 1)
	w.run(20 * time.Second)
	m := w.machines[0]
	if w.leader() == m {
		m = w.machines[2]
	}
	w.loseDisk(m)
	w.run(2 * time.Second)
	if voters := w.leader().replica.Status().Voters; !slices.Contains(voters, m.id) {
		t.Errorf("the voters are %v, want node %d among them, which came back with an empty disk", voters, m.id)
	}
	for _, fault := range w.judge.verdict() {
		t.Error(fault)
	}
}

func TestCallWithoutALeaderIsAnsweredAtItsDeadline(t *testing.T) {
	l := newLone(t)
	l.state = State{} // a node outside every cluster
	l.start(2)
	call, read := l.call(attach("s")), l.Read(l.clock)
	l.ticks(int(loneCallTimeout/tick) - 1)
	if len(l.answers) > 0 {
		t.Fatalf("answered before the deadline: %v", l.answers)
	}
	l.ticks(1)
	for _, id := range []CallID{call, read} {
		if err := l.answers[id].Err; !errors.Is(err, ErrNoLeader) || !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("answer %v, want ErrUnavailable because of ErrNoLeader", err)
		}
	}
}

func TestQueueIsBounded(t *testing.T) {
	l := newLone(t)
	for range l.config.MaxQueued {
		l.call(attach("s"))
	}
	id := l.call(attach("s"))
	if err := l.answers[id].Err; !errors.Is(err, ErrBusy) || len(l.answers) != 1 {
		t.Errorf("answer %v, want ErrBusy", err)
	}
	for range l.config.MaxQueued + 1 {
		id = l.Read(l.clock)
		l.collect()
	}
	if err := l.answers[id].Err; !errors.Is(err, ErrBusy) || len(l.answers) != 2 {
		t.Errorf("answer %v to a read, want ErrBusy", err)
	}
}

// A disk that fails may have lost a vote, so the node stops.
func TestFailedDiskStopsTheNode(t *testing.T) {
	l := newLone(t)
	l.elect()
	call := l.call(attach("s"))
	damage := errors.New("input/output error")
	l.Failed(l.clock, damage)
	l.collect()
	if err := l.Status().Failed; !errors.Is(err, ErrStopped) || !errors.Is(err, damage) {
		t.Errorf("status %v, want ErrStopped because of the disk", err)
	}
	if err := l.answers[call].Err; !errors.Is(err, ErrStopped) {
		t.Errorf("answer %v, want ErrStopped", err)
	}
	l.unsaved = nil
	l.ticks(30)
	if len(l.unsaved) > 0 {
		t.Error("a stopped node writes")
	}
}

func TestCallsThatNoTableMayGetAreRefused(t *testing.T) {
	l := newLone(t)
	l.config.Guarantees.Features &^= lockkeeper.FeatureShared
	shared := []lockkeeper.Target{{Path: "a", Mode: lockkeeper.ModeShared}}
	for name, c := range map[string]table.Command{
		"a restart":            {Op: table.Restart},
		"a session without id": {Op: table.Attach},
		"an unclaimed feature": {Op: table.Claim, Want: lockkeeper.Want{ID: 1, Targets: shared}},
	} {
		id := l.call(c)
		if err := l.answers[id].Err; err == nil || errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("%s: answer %v, want a refusal", name, err)
		}
	}
}

func TestTimeGoesOnFromTheTableNotFromAClock(t *testing.T) {
	l := newLone(t)
	l.elect()
	l.call(attach("s"))
	l.sync()
	before := l.Table().Now()
	l.clock += 1000 * time.Hour // it was off, and its boot clock has another beginning
	l.start(2)
	l.elect()
	l.call(attach("t"))
	l.sync()
	if passed := l.Table().Now() - before; passed > 10*time.Second || !l.Table().Open("s") {
		t.Errorf("%s passed between two leaders, session s is open: %v", passed, l.Table().Open("s"))
	}
}

func TestDueTimersWakeTheLeader(t *testing.T) {
	l := newLone(t)
	l.elect()
	l.call(attach("s"))
	l.sync()
	for range 30 {
		at, ok := l.Next()
		if !ok {
			break
		}
		if at <= l.clock {
			t.Fatalf("Next returns %s, it is %s", at, l.clock)
		}
		l.clock = at
		l.Wake(l.clock)
		l.collect()
		l.sync()
	}
	if l.Table().Open("s") {
		t.Error("the session did not end though the node was woken whenever it asked for it")
	}
}

func TestChangesOfTheConfigurationComeOneAtATime(t *testing.T) {
	l := newLone(t)
	change := func(kind voters.ChangeKind, id uint64) error {
		err := l.Change(l.clock, voters.Change{Kind: kind, ID: id})
		l.collect()
		return err
	}
	if err := change(voters.Add, 2); !errors.Is(err, ErrChange) {
		t.Errorf("a node that does not lead: %v", err)
	}
	l.elect()
	for name, err := range map[string]error{
		"promote a stranger": change(voters.Promote, 2),
		"remove a stranger":  change(voters.Remove, 2),
		"remove the leader":  change(voters.Remove, 1),
		"add a voter":        change(voters.Add, 1),
		"no id":              change(voters.Add, 0),
		"no kind":            change(0, 2),
	} {
		if !errors.Is(err, ErrChange) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := change(voters.Add, 2); err != nil {
		t.Fatal(err)
	}
	if err := change(voters.Add, 3); !errors.Is(err, ErrChange) || !strings.Contains(err.Error(), "another change") {
		t.Errorf("a second change before the first is applied: %v", err)
	}
	if learners := l.Status().Learners; len(learners) > 0 {
		t.Errorf("the learners are %v before the change is committed", learners)
	}
	l.sync()
	if err := change(voters.Add, 3); err != nil {
		t.Errorf("a change after the first is applied: %v", err)
	}
}

// A node whose table went wrong finds out by the leader's hash, and stops.
func TestNodeWithAnotherTableStops(t *testing.T) {
	w := newWorld(t, profile{machines: 3, voters: 3, clients: 3}, 1)
	w.run(5 * time.Second)
	m := w.machines[0]
	if w.leader() == m {
		m = w.machines[2]
	}
	wrong := attach("wrong")
	wrong.At = m.replica.table.Now()
	if _, err := m.replica.table.Step(&wrong); err != nil {
		t.Fatal(err)
	}
	w.run(30 * time.Second)
	err := m.replica.Status().Failed
	if !errors.Is(err, ErrStopped) || !strings.Contains(err.Error(), "differs from the leader's") {
		t.Errorf("it goes on: %v", err)
	}
	for _, other := range w.machines {
		if other != m && other.replica.Status().Failed != nil {
			t.Errorf("%s stops: %v", other.name, other.replica.Status().Failed)
		}
	}
	r := m.replica
	r.Call(r.now, attach("s"))
	if out := r.Output(); len(out.Answers) != 1 || !errors.Is(out.Answers[0].Err, ErrStopped) || len(out.Sends) > 0 {
		t.Errorf("a stopped node answers a call with %v", out)
	}
}

func TestVoteIsDurableBeforeItIsSent(t *testing.T) {
	l := newLone(t)
	l.state = found(t, 1, 2, 3)
	votes := func(incarnation, candidate uint64) bool {
		l.start(incarnation)
		err := l.Receive(l.clock, Message{From: candidate, To: 1, Raft: &pb.Message{
			Type: pb.MsgVote.Enum(), From: &candidate, To: new(uint64(1)), Term: new(uint64(5)), Index: new(uint64(1)),
			LogTerm: new(uint64(1)),
		}})
		if err != nil {
			t.Fatal(err)
		}
		out := l.Output()
		if len(out.Sends) > 0 && l.state.HardState.GetVote() == 0 {
			t.Error("it answers before its vote is durable")
		}
		for _, w := range out.Writes {
			l.state.apply(&w)
			l.Persisted(l.clock, w.Number)
			out.Sends = append(out.Sends, l.Output().Sends...)
		}
		for _, m := range out.Sends {
			if m.Raft.GetType() == pb.MsgVoteResp {
				return m.To == candidate && !m.Raft.GetReject()
			}
		}
		t.Fatalf("candidate %d gets no answer", candidate)
		return false
	}
	if !votes(1, 2) {
		t.Fatal("it does not vote for the first candidate of the term")
	}
	if votes(2, 3) {
		t.Error("after a restart it votes for another candidate of the same term")
	}
	if !votes(3, 2) {
		t.Error("after a restart it does not repeat its vote")
	}
}

func TestDamagedDisksAreRefused(t *testing.T) {
	l := newLone(t)
	l.elect()
	for range 30 {
		l.call(attach("s"))
		l.sync()
	}
	last := len(l.state.Entries) - 1
	for name, damage := range map[string]func(s *State){
		"an entry in the middle is missing": func(s *State) { s.Entries = append(s.Entries[:5], s.Entries[6:]...) },
		"committed entries are missing":     func(s *State) { s.Entries = s.Entries[:last-5] },
		"the hard state is missing":         func(s *State) { s.HardState = nil },
		"the snapshot is missing":           func(s *State) { s.Snapshot = nil },
		"the snapshot is of another entry":  func(s *State) { s.Snapshot.Metadata.Index = new(uint64(2)) },
		"the snapshot is cut":               func(s *State) { s.Snapshot.Data = s.Snapshot.Data[:3] },
		"an entry is of a later term": func(s *State) {
			s.Entries[last] = &pb.Entry{Index: s.Entries[last].Index, Term: new(uint64(99))}
		},
	} {
		s := l.state.clone()
		damage(&s)
		if _, err := New(loneConfig(2), s, 0); err == nil {
			t.Errorf("%s: the node starts", name)
		}
	}
}
