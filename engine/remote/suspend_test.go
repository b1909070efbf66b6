package remote_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
)

// When a node states an outage, the calls end whose callers have no time for it, and no others: these
// wait for the end of the outage.
func TestHastyCallsEndInAnOutage(t *testing.T) {
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	node := startCluster(t, e, "k3v9", 1, 0)[0]
	client := dial(t, "lk://"+node.at())
	node.suspend("no leader")
	hasty, patient := make(chan error, 1), make(chan error, 1)
	attach := func(ctx context.Context, id string, to chan error) {
		s := lockkeeper.Session{ID: id, TTL: lockkeeper.DefaultTTL}
		_, err := client.Attach(ctx, s, func([]lockkeeper.Status) {})
		to <- err
	}
	go attach(roundtrip.EndInOutage(t.Context()), "ann", hasty)
	for node.waits.Load() == 0 {
		<-time.After(time.Millisecond)
	}
	go attach(t.Context(), "bob", patient)
	if err := lockkeeper.OutageOf(client); err != nil {
		t.Errorf("an election is no outage: %v", err)
	}
	s, _ := node.Nodes()
	s.Suspended, s.Outage = "no leader for long", true
	node.state(s)
	err := <-hasty
	if !errors.Is(err, lockkeeper.ErrUnavailable) || !errors.Is(err, lockkeeper.QuorumLost) {
		t.Errorf("%v", err)
	}
	if err := lockkeeper.OutageOf(client); err == nil ||
		err.Error() != "engine unavailable (quorum lost): no leader for long" {
		t.Errorf("the outage is %v", err)
	}
	select {
	case err := <-patient:
		t.Errorf("a call that has time ended: %v", err)
	default:
	}
	node.suspend("")
	if err := <-patient; err != nil {
		t.Error(err)
	}
}

// A client that knows the address of one node alone, which is cut off from the others, finds these before a
// call ends that has no time for an outage.
func TestHastyCallLeavesANodeThatIsCutOff(t *testing.T) {
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	nodes := startCluster(t, e, "k3v9", 3, 0)
	for _, n := range nodes[:2] {
		s, _ := n.Nodes()
		s.Suspended, s.Outage = "no leader", true
		n.state(s)
	}
	c := lockkeeper.New(dial(t, "lk://"+nodes[0].at()))
	t.Cleanup(func() { c.Close() })
	if _, err := c.Lock(t.Context(), "db", lockkeeper.WithWait(0)); err != nil {
		t.Error(err)
	}
}

// A node that can perform no calls because of its own disk says nothing about the quorum of its cluster.
func TestSuspensionForTheNodesOwnDisk(t *testing.T) {
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	node := startCluster(t, e, "k3v9", 1, 0)[0]
	s, _ := node.Nodes()
	s.Suspended, s.Outage = "its disk is full", true
	node.state(s)
	defer node.suspend("") // the server waits for the call
	client := dial(t, "lk://"+node.at())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := client.Attach(ctx, lockkeeper.Session{ID: "s", TTL: time.Minute}, nil)
	for _, err := range []error{err, lockkeeper.OutageOf(client)} {
		if !errors.Is(err, lockkeeper.ErrUnavailable) || !errors.Is(err, lockkeeper.Unreachable) ||
			errors.Is(err, lockkeeper.QuorumLost) {
			t.Errorf("got %v, want it unreachable", err)
		}
	}
}
