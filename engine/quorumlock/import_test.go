package quorumlock

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/disklock"
)

// The clients of a durable server go on with their locks at the cluster that it has become: the holder
// resumes, the waiter keeps its position, and the next fence is higher.
func TestDurableServerBecomesACluster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "server")
	ms := &machines{TB: t, dir: t.TempDir()}
	server, err := disklock.Open(ms.ctx(), dir)
	if err != nil {
		t.Fatal(err)
	}
	want := lockkeeper.Want{ID: 1, Wait: lockkeeper.Forever, Targets: []lockkeeper.Target{
		{Path: "db", Mode: lockkeeper.ModeExclusive},
	}}
	attach := func(e lockkeeper.Engine, s lockkeeper.Session, notify func([]lockkeeper.Status)) lockkeeper.Lease {
		t.Helper()
		s.TTL = time.Minute
		lease, err := e.Attach(ms.ctx(), s, notify)
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	claim := func(who string) (lockkeeper.Key, lockkeeper.Status) {
		t.Helper()
		key := attach(server, lockkeeper.Session{ID: who}, nil).Key
		st, err := server.Claim(ms.ctx(), key, want)
		if err != nil {
			t.Fatal(err)
		}
		return key, st
	}
	ann, held := claim("ann")
	bob, _ := claim("bob")
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}

	m := ms.add("node1")
	t.Cleanup(m.stop)
	for range 2 { // it may be repeated
		move, err := disklock.BeginMove(ms.ctx(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := Found(m.folder, m.config, move); err != nil {
			t.Fatal(err)
		}
		move.Close()
	}
	if _, err := disklock.Open(ms.ctx(), dir); !errors.Is(err, lockkeeper.ErrInvalid) ||
		!strings.Contains(err.Error(), `node "node1"`) {
		t.Errorf("the server starts again: %v, want ErrInvalid that names the node", err)
	}
	m.start()
	granted := make(chan lockkeeper.Status, 10)
	resumed := attach(m.engine, lockkeeper.Session{ID: "ann", Epoch: ann.Epoch, Named: []uint64{1}}, nil)
	if len(resumed.Claims) != 1 || resumed.Claims[0].Fence != held.Fence || resumed.Claims[0].State != lockkeeper.Held {
		t.Fatalf("the holder has %+v, want its hold with fence %d", resumed.Claims, held.Fence)
	}
	waiting := attach(m.engine, lockkeeper.Session{ID: "bob", Epoch: bob.Epoch, Named: []uint64{1}},
		func(all []lockkeeper.Status) {
			for _, st := range all {
				if st.State == lockkeeper.Held {
					granted <- st
				}
			}
		})
	if len(waiting.Claims) != 1 || waiting.Claims[0].State != lockkeeper.Waiting {
		t.Fatalf("the waiter has %+v, want its claim", waiting.Claims)
	}
	release := lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}
	if err := m.engine.End(ms.ctx(), resumed.Key, release); err != nil {
		t.Fatal(err)
	}
	select {
	case st := <-granted:
		if st.Fence <= held.Fence {
			t.Errorf("fence %d after fence %d", st.Fence, held.Fence)
		}
	case <-ms.ctx().Done():
		t.Error("the waiter is not granted")
	}
}

// A node needs a folder of its own: that of a server has files of the same names.
func TestFoundRefusesTheFolderOfAServer(t *testing.T) {
	ms := &machines{TB: t, dir: t.TempDir()}
	m := ms.add("node1")
	server, err := disklock.Open(ms.ctx(), m.folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := Found(m.folder, m.config, nil); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("a running server: %v, want ErrUnavailable", err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Found(m.folder, m.config, nil); !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("a server that has ended: %v, want ErrInvalid", err)
	}
	if server, err = disklock.Open(ms.ctx(), m.folder); err != nil {
		t.Fatalf("the server does not start again: %v", err)
	}
	server.Close()
}
