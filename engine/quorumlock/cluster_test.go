package quorumlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/node"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
)

// A cluster is a few nodes in this process, with disks and a network in memory.
type cluster struct {
	testing.TB
	clock func() time.Duration

	mu      sync.Mutex // guards the fields below, and those of the servers
	servers []*server
	cut     map[[2]uint64]bool                  // ways, from and to, that lose all messages
	delays  bool                                // messages take up to 2 ms, so they overtake each other
	oneWay  func(from, to uint64) time.Duration // how long messages take; nil: no time
	random  *rand.Rand

	lives uint64 // starts so far
}

// A server is a computer with a disk. Its process may be down.
type server struct {
	*cluster
	id     uint64
	disk   disk
	engine *Engine // nil: down
	inbox  chan replica.Message
}

// newCluster returns a cluster of n voters. The servers above that number are outside of it. All stop
// with the test.
func newCluster(t testing.TB, n, outside int) *cluster {
	start := time.Now()
	c := &cluster{
		TB:     t,
		clock:  func() time.Duration { return time.Second + time.Since(start) },
		cut:    make(map[[2]uint64]bool),
		random: rand.New(rand.NewPCG(1, 2)),
	}
	begin := replica.Beginning{Settings: []replica.Setting{{Key: votersKey, Value: fmt.Append(nil, n)}}}
	for i := range n + outside {
		id := uint64(i + 1)
		if i < n {
			begin.Voters = append(begin.Voters, id)
		}
		begin.Settings = append(begin.Settings, nodeSetting(t, join.Node{
			Name:   fmt.Sprint("node", id),
			ID:     id,
			Rank:   1,
			Random: uint32(id),
		}))
	}
	for i := range n + outside {
		s := &server{cluster: c, id: uint64(i + 1), inbox: make(chan replica.Message, 10_000)}
		if i < n {
			var err error
			if s.disk.state, err = replica.Found(begin); err != nil {
				t.Fatal(err)
			}
		}
		c.servers = append(c.servers, s)
		go s.receive()
	}
	for _, s := range c.servers {
		s.start()
	}
	t.Cleanup(func() {
		for _, s := range c.servers {
			s.stop()
			close(s.inbox)
		}
	})
	return c
}

func nodeSetting(t testing.TB, n join.Node) replica.Setting {
	text, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	return replica.Setting{Key: "node/" + n.Name, Value: text}
}

// start starts the process of a server, if it is down. One goroutine at a time starts servers.
func (s *server) start() {
	if s.running() != nil {
		return
	}
	s.lives++
	n, err := node.New(withDefaults(node.Config{
		Replica:   replica.Config{ID: s.id, Incarnation: s.lives},
		Storage:   &s.disk,
		Transport: s,
		Clock:     s.clock,
		Repeat:    func(err error) bool { return err == errFull },
		Members:   members(s.silent),
	}), s.disk.load())
	if err != nil {
		s.Errorf("node %d does not start: %v", s.id, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine = &Engine{node: n}
}

// silent is for how long a server outside the configuration has not answered.
func (s *server) silent(id uint64) time.Duration {
	if s.servers[id-1].running() == nil {
		return time.Hour
	}
	return 0
}

// stop ends the process of a server, as a crash does.
func (s *server) stop() {
	s.mu.Lock()
	e := s.engine
	s.engine = nil
	s.mu.Unlock()
	if e != nil {
		e.Close()
	}
}

// running returns the engine of a server; nil if it is down.
func (s *server) running() *Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine
}

// Send implements node.Transport.
func (s *server) Send(m replica.Message) {
	b, err := m.MarshalBinary()
	if err != nil {
		s.Errorf("a message of node %d: %v", s.id, err)
		return
	}
	copied := replica.Message{From: m.From, To: m.To}
	if err := copied.UnmarshalBinary(b); err != nil {
		s.Errorf("a message of node %d: %v", s.id, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.servers[m.To-1]
	switch {
	case s.cut[[2]uint64{m.From, m.To}]:
	case s.oneWay != nil:
		time.AfterFunc(s.oneWay(m.From, m.To), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			to.put(copied)
		})
	case s.delays:
		time.AfterFunc(1+time.Duration(s.random.Int64N(int64(2*time.Millisecond))), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			to.put(copied)
		})
	default:
		to.put(copied)
	}
}

// put brings a message to a server that runs. The caller holds the mutex.
func (s *server) put(m replica.Message) {
	if s.engine == nil {
		return
	}
	select {
	case s.inbox <- m:
	default: // lost
	}
}

func (s *server) receive() {
	for m := range s.inbox {
		if e := s.running(); e != nil {
			if err := e.node.Receive([]replica.Message{m}); err != nil {
				s.Errorf("node %d refuses a message of node %d: %v", m.To, m.From, err)
			}
		}
	}
}

// isolate cuts all ways between a server and the others, or heals them.
func (c *cluster) isolate(s *server, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.servers {
		c.cut[[2]uint64{s.id, other.id}], c.cut[[2]uint64{other.id, s.id}] = cut, cut
	}
}

// heal starts all servers and heals all ways.
func (c *cluster) heal() {
	for _, s := range c.servers {
		c.isolate(s, false)
		s.start()
	}
}

// ready returns when the cluster answers at every node.
func (c *cluster) ready() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, s := range c.servers {
		if err := s.running().node.Read(ctx); err != nil {
			c.Fatalf("the cluster does not answer at node %d: %v", s.id, err)
		}
	}
}

// leader returns the server that leads; nil if none does.
func (c *cluster) leader() *server {
	for _, s := range c.servers {
		if e := s.running(); e != nil && e.node.Status().Ready {
			return s
		}
	}
	return nil
}

// A disk keeps writes in memory.
type disk struct {
	mu     sync.Mutex
	state  replica.State
	broken error // of every write
}

var errFull = errors.New("the disk is full")

// Write implements node.Storage.
func (d *disk) Write(writes []replica.Write) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return d.broken
	}
	for i := range writes {
		d.apply(&writes[i])
	}
	return nil
}

// fail lets all writes fail with err; nil: none.
func (d *disk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = err
}

func (d *disk) apply(w *replica.Write) {
	s := &d.state
	if w.HardState != nil {
		s.HardState = w.HardState
	}
	if w.Snapshot != nil {
		index := w.Snapshot.GetMetadata().GetIndex()
		s.Snapshot = w.Snapshot
		s.Entries = slices.DeleteFunc(slices.Clone(s.Entries), func(e *pb.Entry) bool {
			return w.Install || e.GetIndex() <= index
		})
	}
	if len(w.Entries) > 0 {
		first := w.Entries[0].GetIndex()
		for len(s.Entries) > 0 && s.Entries[len(s.Entries)-1].GetIndex() >= first {
			s.Entries = s.Entries[:len(s.Entries)-1]
		}
		s.Entries = append(s.Entries, w.Entries...)
	}
}

func (d *disk) load() replica.State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return replica.State{
		HardState: d.state.HardState, Snapshot: d.state.Snapshot, Entries: slices.Clone(d.state.Entries),
	}
}

// A visitor is what a client has of a cluster: it uses one node until that does not answer, and then
// the next one.
type visitor struct {
	nodes []func() *Engine // nil: the node is down

	mu sync.Mutex
	at int
}

// visitor returns one that begins at the node with that index.
func (c *cluster) visitor(at int) *visitor {
	v := &visitor{at: at}
	for _, s := range c.servers {
		v.nodes = append(v.nodes, s.running)
	}
	return v
}

var errDown = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "the node is down"}

// use returns the engine of the present node, and what to do with the error of its call.
func (v *visitor) use() (*Engine, func(error)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	at := v.at
	return v.nodes[at](), func(err error) {
		if errors.Is(err, lockkeeper.ErrUnavailable) {
			v.mu.Lock()
			defer v.mu.Unlock()
			if v.at == at {
				v.at = (at + 1) % len(v.nodes)
			}
		}
	}
}

// patience is how long a visitor waits for one node.
const patience = 3 * time.Second

func visit[T any](ctx context.Context, v *visitor, call func(context.Context, *Engine) (T, error)) (T, error) {
	e, done := v.use()
	if e == nil {
		done(errDown)
		var none T
		return none, errDown
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reply, err := call(ctx, e)
	done(err)
	return reply, err
}

func (v *visitor) Guarantees() lockkeeper.Guarantees { return guarantees() }

func (v *visitor) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	return visit(ctx, v, func(ctx context.Context, e *Engine) (lockkeeper.Lease, error) {
		return e.Attach(ctx, s, notify)
	})
}

func (v *visitor) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	return visit(ctx, v, func(ctx context.Context, e *Engine) (lockkeeper.Lease, error) { return e.Renew(ctx, k) })
}

func (v *visitor) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	return visit(ctx, v, func(ctx context.Context, e *Engine) (lockkeeper.Status, error) { return e.Claim(ctx, k, w) })
}

func (v *visitor) End(ctx context.Context, k lockkeeper.Key, x lockkeeper.Ending) error {
	_, err := visit(ctx, v, func(ctx context.Context, e *Engine) (struct{}, error) {
		return struct{}{}, e.End(ctx, k, x)
	})
	return err
}

func (v *visitor) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return func(yield func(lockkeeper.Status, error) bool) {
		e, done := v.use()
		if e == nil {
			done(errDown)
			yield(lockkeeper.Status{}, errDown)
			return
		}
		for st, err := range e.List(ctx, q) {
			done(err)
			if !yield(st, err) {
				return
			}
		}
	}
}

func (v *visitor) Close() error { return nil }
