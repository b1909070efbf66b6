package quorumlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/storage"
)

// machines are nodes of one cluster in this process, with folders and sockets of their own.
type machines struct {
	testing.TB
	dir string
	all []*machine
}

type machine struct {
	of     *machines
	folder string
	config Config
	engine *Engine // nil: it does not run
	live   atomic.Pointer[Engine]
}

// newMachines founds a cluster of one node, and lets others join until there are n.
func newMachines(t testing.TB, n int) *machines {
	ms := &machines{TB: t, dir: t.TempDir()}
	t.Cleanup(func() {
		for _, m := range ms.all {
			m.stop()
		}
	})
	first := ms.add("node1")
	if err := Found(first.folder, first.config, nil); err != nil {
		t.Fatal(err)
	}
	first.start()
	for i := 1; i < n; i++ {
		m := ms.add(fmt.Sprint("node", i+1))
		if err := m.join(ms.token()); err != nil {
			t.Fatal(err)
		}
		m.start()
	}
	return ms
}

// foundMachines makes a cluster of n voters at once, of rank 0, and starts its nodes.
func foundMachines(t testing.TB, n int) *machines {
	ms := &machines{TB: t, dir: t.TempDir()}
	t.Cleanup(func() {
		for _, m := range ms.all {
			m.stop()
		}
	})
	begin, all := new(beginning), make([]join.Identity, n)
	var ids []uint64
	for i := range n {
		m := ms.add(fmt.Sprint("node", i+1))
		if i > 0 {
			ms.must(join.CopyAuthority(ms.all[0].folder, m.folder))
		}
		var err error
		all[i], err = join.Found(m.folder, m.config.Name)
		ms.must(err)
		all[i].Cluster = all[0].Cluster
		keys, err := join.OpenCredentials(m.folder, all[i])
		ms.must(err)
		m.config.Rank = 0
		node, err := m.config.newNode()
		ms.must(err)
		ms.must(join.Enrol(ms.ctx(), begin, keys, node))
		ids = append(ids, all[i].ID)
	}
	for i, m := range ms.all {
		state, err := replica.Found(replica.Beginning{Voters: ids, Settings: append(begin.settings, replica.Setting{
			Key: votersKey, Value: fmt.Append(nil, n),
		})})
		ms.must(err)
		ms.must(storage.Create(m.folder, storage.Identity(all[i]), state))
		m.start()
	}
	for _, m := range ms.all {
		m.await("contact", func(s replica.Status) bool { return s.Contact })
	}
	return ms
}

func (ms *machines) must(err error) {
	ms.Helper()
	if err != nil {
		ms.Fatal(err)
	}
}

// add returns a machine that has no node yet.
func (ms *machines) add(name string) *machine {
	l, err := new(net.ListenConfig).Listen(ms.ctx(), "tcp", ownAddress()+":0")
	if err != nil {
		ms.Fatal(err)
	}
	defer l.Close()
	m := &machine{of: ms, folder: filepath.Join(ms.dir, fmt.Sprint(len(ms.all), name)), config: Config{
		Name: name, Listen: l.Addr().String(), Rank: DefaultRank,
	}}
	ms.all = append(ms.all, m)
	return m
}

// ownAddress returns an address of this computer, where possible one that nobody else uses: a node that
// restarts needs its port again, and on 127.0.0.1 any connection may have got it meanwhile.
func ownAddress() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// ctx bounds what must happen soon. It ends with the test.
func (ms *machines) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	ms.Cleanup(cancel)
	return ctx
}

func (ms *machines) token() Token {
	ms.Helper()
	token, err := ms.running().CreateToken(ms.ctx(), DefaultTokenLife)
	if err != nil {
		ms.Fatal(err)
	}
	return token
}

// running returns the engine of the first machine that runs.
func (ms *machines) running() *Engine {
	for _, m := range ms.all {
		if m.engine != nil {
			return m.engine
		}
	}
	ms.Fatal("no machine runs")
	return nil
}

func (m *machine) join(t Token) error { return Join(m.of.ctx(), m.folder, t, m.config) }

func (m *machine) open() (err error) {
	m.engine, err = Open(m.of.ctx(), m.folder, m.config)
	m.live.Store(m.engine)
	return err
}

func (m *machine) start() {
	m.of.Helper()
	if err := m.open(); err != nil {
		m.of.Fatal(err)
	}
}

func (m *machine) stop() {
	m.of.Helper()
	if m.engine == nil {
		return
	}
	m.live.Store(nil)
	if err := m.engine.Close(); err != nil {
		m.of.Error(err)
	}
	m.engine = nil
}

// crash stops the node without a word to the others.
func (m *machine) crash() {
	m.of.Helper()
	m.live.Store(nil)
	m.engine.host.closing.Do(func() {
		if err := m.engine.host.stop(m.engine); err != nil {
			m.of.Error(err)
		}
	})
	m.engine = nil
}

// visitor returns one that begins at the machine with that index.
func (ms *machines) visitor(at int) *visitor {
	v := &visitor{at: at}
	for _, m := range ms.all {
		v.nodes = append(v.nodes, m.live.Load)
	}
	return v
}

// await returns when the node's status is as is says.
func (m *machine) await(what string, is func(s replica.Status) bool) {
	m.of.Helper()
	if s, err := m.engine.node.Await(m.of.ctx(), is); err != nil {
		m.of.Fatalf("%s does not become true at %s: %v, %+v", what, m.config.Name, err, s)
	}
}

// until returns when something is true that nobody is notified of.
func (ms *machines) until(what string, is func() bool) {
	ms.Helper()
	for ctx := ms.ctx(); !is(); {
		select {
		case <-ctx.Done():
			ms.Fatalf("%s: not true in time", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// settle returns when that many nodes vote and all others are learners, as every node that runs knows.
func (ms *machines) settle(voters, learners int) {
	ms.Helper()
	for _, m := range ms.all {
		if m.engine != nil {
			m.await(fmt.Sprint(voters, " voters, ", learners, " learners"), func(s replica.Status) bool {
				return len(s.Voters) == voters && len(s.Learners) == learners
			})
		}
	}
}

// leader returns a machine that leads, as it knows itself.
func (ms *machines) leader() *machine {
	ms.Helper()
	for _, m := range ms.all {
		if m.engine != nil && m.engine.node.Status().Ready {
			return m
		}
	}
	ms.Fatal("no machine leads")
	return nil
}

// lock locks a path at a node.
func (m *machine) lock(path string) *lockkeeper.Hold {
	m.of.Helper()
	client := lockkeeper.New(m.engine)
	hold, err := client.Lock(m.of.ctx(), path)
	if err != nil {
		m.of.Fatalf("%s at %s: %v", path, m.config.Name, err)
	}
	return hold
}

// id returns the id of the node, which runs.
func (m *machine) id() uint64 { return m.engine.host.store.Identity().ID }
