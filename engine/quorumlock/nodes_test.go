package quorumlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/storage"
)

func TestClusterGrowsFromOneNodeToFive(t *testing.T) {
	t.Parallel()
	ms := newMachines(t, 1)
	ms.settle(1, 0)
	held := ms.all[0].lock("first")
	for n := 2; n <= 5; n++ {
		m := ms.add(fmt.Sprint("node", n))
		if err := m.join(ms.token()); err != nil {
			t.Fatal(err)
		}
		m.start()
		ms.settle(min(n-1+n%2, 3), max(n-3, (n+1)%2))
		hold := m.lock(fmt.Sprint("path/", n))
		if hold.Fence() <= held.Fence() {
			t.Errorf("fence %d after fence %d", hold.Fence(), held.Fence())
		}
		held = hold
	}
	if err := ms.all[2].engine.SetVoters(ms.ctx(), 5); err != nil {
		t.Fatal(err)
	}
	ms.settle(5, 0)
}

// A hold survives a restart of each node in turn; the client is at another node meanwhile.
func TestEachNodeRestarts(t *testing.T) {
	t.Parallel()
	ms := newMachines(t, 3)
	ms.settle(3, 0)
	hold := ms.all[0].lock("db")
	fence := hold.Fence()
	for i, m := range ms.all[1:] {
		m.stop()
		m.start()
		m.await("contact", func(s replica.Status) bool { return s.Contact && len(s.Voters) == 3 })
		if next := m.lock(fmt.Sprint("other/", i)); next.Fence() <= fence {
			t.Errorf("fence %d after fence %d", next.Fence(), fence)
		}
	}
	if err := hold.Release(ms.ctx()); err != nil {
		t.Error(err)
	}
	ms.all[0].stop()
	ms.all[0].start()
	ms.settle(3, 0)
}

// The crash of a leader costs its clients time only: holds, positions and fences stay.
func TestCrashOfTheLeaderKeepsHoldsAndPositions(t *testing.T) {
	t.Parallel()
	ms := foundMachines(t, 3)
	leader := ms.leader()
	at := slices.Index(ms.all, leader)
	clients := [2]*lockkeeper.Client{lockkeeper.New(ms.visitor(at)), lockkeeper.New(ms.visitor((at + 1) % 3))}
	hold, err := clients[0].Lock(ms.ctx(), "db")
	ms.must(err)
	next := make(chan *lockkeeper.Hold, 1)
	go func() {
		defer close(next)
		hold, err := clients[1].Lock(ms.ctx(), "db")
		if err != nil {
			t.Error(err)
			return
		}
		next <- hold
	}()
	ms.until("the second client waits", func() bool { return ms.waits(ms.all[(at+1)%3]) == 1 })
	leader.crash()
	other := ms.all[(at+2)%3]
	other.await("another leader", func(s replica.Status) bool { return s.Contact && s.Leader != s.ID || s.Ready })
	select {
	case <-next:
		t.Fatal("the lock has two holders")
	default:
	}
	ms.must(hold.Release(ms.ctx()))
	if second := <-next; second == nil || second.Fence() <= hold.Fence() {
		t.Errorf("after fence %d the next holder has %v", hold.Fence(), second)
	}
	for _, c := range clients {
		ms.must(c.Close())
	}
}

// waits returns how many claims wait, as a node knows it.
func (ms *machines) waits(at *machine) (n int) {
	for st, err := range at.engine.List(ms.ctx(), lockkeeper.Query{}) {
		ms.must(err)
		if st.State == lockkeeper.Waiting {
			n++
		}
	}
	return n
}

func TestWholeClusterRestarts(t *testing.T) {
	t.Parallel()
	ms := newMachines(t, 3)
	ms.settle(3, 0)
	before := ms.all[1].lock("db").Fence()
	for _, m := range ms.all {
		m.stop()
	}
	for _, m := range ms.all {
		m.start()
	}
	ms.all[2].await("contact", func(s replica.Status) bool { return s.Contact })
	if after := ms.all[2].lock("other").Fence(); after <= before {
		t.Errorf("fence %d after fence %d", after, before)
	}
	st, err := ms.all[0].engine.Claim(ms.ctx(), lockkeeper.Key{}, lockkeeper.Want{})
	if err == nil {
		t.Errorf("a claim without a session is answered with %v", st)
	}
}

func TestNodeThatLostItsLogDoesNotComeBack(t *testing.T) {
	t.Parallel()
	ms := newMachines(t, 3)
	ms.settle(3, 0)
	lost := ms.all[2]
	old := lost.engine.host.store.Identity().ID
	lost.stop()
	for _, name := range []string{"node.db", "node.db-wal", "mark"} {
		if err := os.Remove(filepath.Join(lost.folder, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if err := lost.open(); !errors.Is(err, storage.ErrNoNode) && !errors.Is(err, storage.ErrLost) {
		t.Fatalf("a node without its log opens: %v", err)
	}
	token := ms.token()
	if err := lost.join(token); !errors.Is(err, join.ErrLogLost) {
		t.Errorf("the node of a lost log joins again: %v", err)
	}
	again := ms.add("node3")
	if err := again.join(token); !isRefusal(err, join.NameTaken) {
		t.Errorf("a second node joins under a taken name: %v", err)
	}
	if err := ms.all[0].engine.Remove(ms.ctx(), "node3", "its disk is lost"); err != nil {
		t.Fatal(err)
	}
	if err := again.join(token); err != nil {
		t.Fatal(err)
	}
	again.start()
	again.await("three voters without the lost id", func(s replica.Status) bool {
		return len(s.Voters) == 3 && !slices.Contains(s.Voters, old)
	})
	again.lock("db")
}

func isRefusal(err error, code join.Code) bool {
	refusal, ok := errors.AsType[*Refusal](err)
	return ok && refusal.Code == code
}

func TestRemovedNodeIsLetInNoMore(t *testing.T) {
	t.Parallel()
	ms := newMachines(t, 4)
	ms.settle(3, 1)
	leader := ms.leader()
	out := ms.all[0]
	if out == leader {
		out = ms.all[1]
	}
	id := out.engine.host.store.Identity().ID
	if err := leader.engine.Remove(ms.ctx(), out.config.Name, "it is sold"); err != nil {
		t.Fatal(err)
	}
	leader.await("three voters without the removed one", func(s replica.Status) bool {
		return len(s.Voters) == 3 && !slices.Contains(s.Voters, id)
	})
	out.await("no contact", func(s replica.Status) bool { return !s.Contact })
	ms.until("its lists say that it was removed", func() bool {
		ctx, cancel := context.WithTimeout(ms.ctx(), tickTime)
		defer cancel()
		for _, err := range out.engine.List(ctx, lockkeeper.Query{}) {
			return errors.Is(err, ErrRemoved)
		}
		return false
	})
	out.stop()
	out.start()
	if out.engine.node.Status().Contact {
		t.Error("the removed node has contact again")
	}
	leader.lock("db")
}

// A leader that is told to remove itself does so, and leads no more.
func TestRemovedLeaderLeadsNoMore(t *testing.T) {
	t.Parallel()
	ms := newMachines(t, 4)
	ms.settle(3, 1)
	out := ms.leader()
	id := out.id()
	if err := out.engine.Remove(ms.ctx(), out.config.Name, "it is sold"); err != nil {
		t.Fatal(err)
	}
	out.await("it leads no more", func(s replica.Status) bool { return !s.Ready && !s.Contact })
	for _, m := range ms.all {
		if m != out {
			m.await("three other voters", func(s replica.Status) bool {
				return s.Contact && len(s.Voters) == 3 && !slices.Contains(s.Voters, id) && s.Leader != id
			})
			m.lock("db/" + m.config.Name)
		}
	}
	if s := out.engine.node.Status(); s.Ready || s.Contact {
		t.Errorf("the removed leader: %+v", s)
	}
}

func TestRemoveKeepsAMajority(t *testing.T) {
	t.Parallel()
	ms := newMachines(t, 3)
	ms.settle(3, 0)
	two, lost := ms.all[1].engine, ms.all[2].id()
	ms.all[2].stop()
	ms.until("the connection has ended", func() bool { return !two.host.reaches(lost) })
	err := two.Remove(ms.ctx(), "node1", "by mistake")
	if !errors.Is(err, lockkeeper.ErrInvalid) || !errors.Is(err, ErrKeepsMajority) {
		t.Errorf("one of two voters that live is removed: %v", err)
	}
	if err := two.Remove(ms.ctx(), "node9", "by mistake"); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("a node that is not there is removed: %v", err)
	}
}

// Two removals at once leave a cluster that grants, and an operator who repeats one that failed gets it done.
func TestRemovalsAtOnceKeepAMajority(t *testing.T) {
	t.Parallel()
	ms := newMachines(t, 3)
	ms.settle(3, 0)
	first := ms.all[0].engine
	ends := make(chan error, 2)
	for _, m := range ms.all[1:] {
		go func() { ends <- first.Remove(ms.ctx(), m.config.Name, "it is sold") }()
	}
	a, b := <-ends, <-ends
	if refused := cmp.Or(a, b); a != nil && b != nil || refused != nil && !errors.Is(refused, lockkeeper.ErrInvalid) {
		t.Errorf("two removals end with %v and %v", a, b)
	}
	ms.all[0].lock("db")
	for _, m := range ms.all[1:] {
		ms.until("it is removed, too", func() bool {
			err := first.Remove(ms.ctx(), m.config.Name, "it is sold")
			return err == nil || strings.Contains(err.Error(), "has no node")
		})
	}
	ms.all[0].lock("site")
}

func TestTransferAndRank(t *testing.T) {
	t.Parallel()
	ms := newMachines(t, 3)
	ms.settle(3, 0)
	for _, m := range ms.all {
		if err := ms.all[1].engine.Transfer(ms.ctx(), m.config.Name); err != nil {
			t.Fatalf("transfer to %s: %v", m.config.Name, err)
		}
		if s := m.engine.Cluster(); s.Leader != m.config.Name {
			t.Errorf("%q leads, want %q", s.Leader, m.config.Name)
		}
	}
	one := ms.all[0]
	if err := ms.all[2].engine.SetRank(ms.ctx(), "node1", 0); err != nil {
		t.Fatal(err)
	}
	one.await("node1 leads", func(s replica.Status) bool { return s.Ready })
	if err := ms.all[2].engine.Transfer(ms.ctx(), "node2"); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("the leadership is transferred to a node that can't keep it: %v", err)
	}
	if err := ms.all[2].engine.SetRank(ms.ctx(), "node1", RankOff); err != nil {
		t.Fatal(err)
	}
	ms.settle(1, 2)
	if one.engine.Cluster().Leader == "node1" {
		t.Error("a node of rank off leads")
	}
}

// Nodes come back at other addresses, where nobody knows them: they connect to the others and state the
// addresses, so the leader reaches them, and the cluster notes where they are.
func TestNodesComeBackAtOtherAddresses(t *testing.T) {
	t.Parallel()
	ms := newMachines(t, 3)
	ms.settle(3, 0)
	stays := ms.leader()
	var moved []*machine
	for _, m := range slices.Clone(ms.all) {
		if m != stays {
			m.stop()
			m.config.Listen = ms.add("nobody").config.Listen
			moved = append(moved, m)
		}
	}
	for _, m := range moved {
		m.start()
	}
	for _, m := range moved {
		m.await("contact", func(s replica.Status) bool { return s.Contact })
	}
	stays.lock("db")
	for _, m := range moved {
		ms.until("the cluster knows the new address", func() bool {
			for _, n := range stays.engine.Cluster().Nodes {
				if n.Name == m.config.Name {
					return n.Address == m.config.Listen
				}
			}
			return false
		})
	}
}

// A voter that is down can't lead. The operator learns that at once.
func TestTransferToALostNodeIsRefused(t *testing.T) {
	t.Parallel()
	ms := newMachines(t, 3)
	ms.settle(3, 0)
	one, lost := ms.all[0], ms.all[2]
	id := lost.engine.host.store.Identity().ID
	lost.stop()
	for one.engine.host.reaches(id) {
		<-time.After(10 * time.Millisecond)
	}
	if err := one.engine.Transfer(ms.ctx(), lost.config.Name); !errors.Is(err, lockkeeper.ErrInvalid) ||
		!strings.Contains(err.Error(), "is not reached") {
		t.Errorf("the leadership is transferred to a node that is down: %v", err)
	}
}
