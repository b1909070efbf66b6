package peers

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/badnet"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
	"github.com/lockkeeper/lockkeeper/table"
)

// A member is a Replica on a Transport. Its disk is in memory, and it never restarts.
type member struct {
	*node
	replica *replica.Replica
	inputs  chan func(r *replica.Replica, now time.Duration)
	answers map[replica.CallID]chan replica.Answer // used by the goroutine of run
	done    chan struct{}
	begin   time.Time
}

const clusterTick = 20 * time.Millisecond

func newMember(t *testing.T, a *ca, id uint64, voters []uint64) *member {
	m := &member{
		inputs:  make(chan func(*replica.Replica, time.Duration), 1000),
		answers: make(map[replica.CallID]chan replica.Answer),
		done:    make(chan struct{}),
		begin:   time.Now(),
	}
	state, err := replica.Found(replica.Beginning{Voters: voters})
	if err != nil {
		t.Fatal(err)
	}
	m.replica, err = replica.New(replica.Config{
		ID:             id,
		Incarnation:    id + 100,
		Guarantees:     lockkeeper.Guarantees{Name: "quorum", Features: lockkeeper.TableFeatures},
		HeartbeatTicks: 1,
		ElectionTicks:  15,
		CallTimeout:    2 * time.Second,
		RecordEvery:    time.Second,
		SnapshotEvery:  50,
		KeepEntries:    10,
		MaxQueued:      1000,
		MaxEntry:       4096,
		MaxUnwritten:   1 << 20,
	}, state, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.node = a.start(id, func(s *Settings, _ *bounds) {
		s.Silence = 500 * time.Millisecond
		s.Receive = each(func(message replica.Message) {
			m.input(func(r *replica.Replica, now time.Duration) {
				if err := r.Receive(now, message); err != nil {
					t.Errorf("node %d refuses a message: %v", id, err)
				}
			})
		})
	})
	return m
}

// input brings an input to the replica, unless the member has ended.
func (m *member) input(do func(*replica.Replica, time.Duration)) {
	select {
	case m.inputs <- do:
	case <-m.done:
	}
}

func (m *member) now() time.Duration { return time.Since(m.begin) }

func (m *member) run() {
	ticker := time.NewTicker(clusterTick)
	defer ticker.Stop()
	for {
		select {
		case do := <-m.inputs:
			do(m.replica, m.now())
		case <-ticker.C:
			m.replica.Tick(m.now())
		case <-m.done:
			return
		}
		if at, ok := m.replica.Next(); ok && at <= m.now() {
			m.replica.Wake(m.now())
		}
		for m.collect() {
		}
	}
}

// collect carries out the output of the replica, and reports whether there may be more.
func (m *member) collect() bool {
	out := m.replica.Output()
	for _, send := range out.Sends {
		m.Send(send)
	}
	for _, a := range out.Answers {
		m.answers[a.Call] <- a
		delete(m.answers, a.Call)
	}
	if len(out.Writes) == 0 {
		return false
	}
	m.replica.Persisted(m.now(), out.Writes[len(out.Writes)-1].Number)
	return true
}

// do makes a call or a read, and waits for its answer.
func (m *member) do(begin func(*replica.Replica, time.Duration) replica.CallID) replica.Answer {
	answer := make(chan replica.Answer, 1)
	m.input(func(r *replica.Replica, now time.Duration) { m.answers[begin(r, now)] = answer })
	return <-answer
}

// attach attaches a session, and repeats the call until it was made.
func (m *member) attach(t *testing.T, session string) (tries int) {
	for {
		tries++
		a := m.do(func(r *replica.Replica, now time.Duration) replica.CallID {
			return r.Call(now, table.Command{
				Op: table.Attach, Session: lockkeeper.Session{ID: session, TTL: time.Hour},
			})
		})
		var refused *lockkeeper.Error
		switch {
		case a.Err == nil:
			return tries
		case errors.Is(a.Err, lockkeeper.ErrUnavailable):
		case errors.As(a.Err, &refused) && refused.Epoch != 0:
			return tries // an earlier call was made, and its answer was lost
		default:
			t.Errorf("session %s can't attach: %v", session, a.Err)
			return tries
		}
	}
}

func TestClusterCommitsWhileConnectionsAreCut(t *testing.T) {
	seed := testmode.Seed(t)
	a := newCA(t)
	ids := []uint64{1, 2, 3}
	var members []*member
	for _, id := range ids {
		members = append(members, newMember(t, a, id, ids))
	}
	var proxies []*badnet.Proxy
	for _, from := range members {
		for _, to := range members {
			if from == to {
				continue
			}
			p, err := badnet.NewFrameless(to.address, seed+uint64(len(proxies)))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			proxies = append(proxies, p)
			from.Set(to.settings.ID, p.Addr())
		}
	}
	var running sync.WaitGroup
	for _, m := range members {
		running.Go(m.run)
	}
	defer running.Wait()
	defer func() {
		for _, m := range members {
			close(m.done)
		}
	}()
	members[0].attach(t, "first")
	for _, p := range proxies {
		p.Start(badnet.Schedule{
			Healthy: 40, Delay: 5 * time.Millisecond, Stall: 300 * time.Millisecond, Discard: 300 * time.Millisecond,
			Cut: true, Drip: true, Refuse: 200 * time.Millisecond,
		})
	}
	// Until enough has happened.
	calls, tries := 0, 0
	for calls < 40 || cuts(proxies) < testmode.Pick(int64(30), 500) {
		tries += members[calls%len(members)].attach(t, fmt.Sprintf("session%d", calls))
		calls++
	}
	for _, p := range proxies {
		p.Heal()
	}
	members[1].attach(t, "last")
	t.Logf("%d calls in %d tries; %d connections are cut", calls, tries, cuts(proxies))
	for _, m := range members {
		checkMember(t, m, calls+2)
	}
}

// cuts returns how many connections were cut so far.
func cuts(proxies []*badnet.Proxy) (n int64) {
	for _, p := range proxies {
		n += p.Counts().Cut.Load()
	}
	return n
}

// checkMember reads the table of a member, which must have that many sessions.
func checkMember(t *testing.T, m *member, sessions int) {
	t.Helper()
	read := func(r *replica.Replica, now time.Duration) replica.CallID { return r.Read(now) }
	for a := m.do(read); a.Err != nil; a = m.do(read) {
		if !errors.Is(a.Err, lockkeeper.ErrUnavailable) {
			t.Fatalf("node %d can't read: %v", m.settings.ID, a.Err)
		}
	}
	checked := make(chan struct{})
	m.input(func(r *replica.Replica, _ time.Duration) {
		defer close(checked)
		if got := len(r.Table().Snapshot().Sessions); got != sessions {
			t.Errorf("node %d has %d sessions, want %d", m.settings.ID, got, sessions)
		}
		if err := r.Status().Failed; err != nil {
			t.Errorf("node %d has stopped: %v", m.settings.ID, err)
		}
	})
	<-checked
}
