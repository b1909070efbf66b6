package node

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
	"github.com/lockkeeper/lockkeeper/internal/attached"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// A Storage makes writes durable.
type Storage interface {
	// Write returns when all of these writes are durable. One goroutine at a time calls it, with the
	// writes in the order of their numbers. After an error the node stops, and Write is not called
	// again, except as Config.Repeat says.
	Write([]replica.Write) error
}

// A Transport carries messages to other nodes. Its owner brings those of other nodes to
// [Node.Receive].
type Transport interface {
	// Send sends the message to the node m.To. It must not wait, and may drop the message. One
	// goroutine at a time calls it. It must not call a method of the node.
	Send(m replica.Message)
}

// A Config is what a Node needs from its owner.
type Config struct {
	Replica   replica.Config // the node itself sets Applied
	Storage   Storage
	Transport Transport
	Clock     func() time.Duration // the boot clock of the machine; safe for concurrent use
	Tick      time.Duration        // of Replica.HeartbeatTicks and Replica.ElectionTicks

	// Repeat reports whether nothing of a write that failed with err is durable, and the same write may
	// succeed later, such as on a full disk. Nil: never.
	Repeat func(err error) bool

	// Members returns who may be in the configuration of the log: all nodes that the cluster knows, with
	// their present and former ids. It sets Silent only for ids outside the configuration, and
	// neither Role nor CaughtUp. With an error, the configuration stays as it is. Members must be
	// quick, must not call a method of the node, and is only called while this node leads. It may be
	// nil.
	Members func(*replica.Replica) (voters.Policy, []voters.Member, error)

	// Wished returns the id that should lead now because an operator wishes it; 0 if nobody does. It is
	// bound as Members is, and may be nil.
	Wished func(*replica.Replica) uint64
}

// A Node is a running replica. It is safe for concurrent use.
type Node struct {
	config Config
	view   *keeper.View

	// Guarded by view.
	replica     *replica.Replica
	waiters     map[replica.CallID]*waiter
	answers     []answered      // since the view was locked, that unlock passes on
	writes      []replica.Write // that the writer has not taken
	timer       *time.Timer     // calls wake
	wakeAt      time.Duration   // when timer fires, by the clock; lockkeeper.Forever if never
	ticks       int             // since the process stood still for an election timeout
	tickedAt    time.Duration   // the clock at the latest tick
	contactless int             // ticks without contact with a leader
	contactAt   time.Duration   // the clock at the latest tick with contact
	triedHeirs  []uint64        // ids to which this node tried to transfer since its disk is stuck
	suspended   bool            // the node can make no calls; see followContact
	closed      bool
	status      replica.Status // at the latest tick
	statusNews  chan struct{}  // closed at a tick with another status, and when the node is closed

	statusSuspended bool // suspended at the latest tick

	outage   atomic.Pointer[outage]
	mail     mailbox
	writable chan struct{} // filled when writes gets an element
	quit     chan struct{} // closed with the node
	running  sync.WaitGroup
}

// New starts a node with what its disk has. An error says what is wrong with the config or the
// state; the node must then not run under this id.
func New(c Config, state replica.State) (*Node, error) {
	n := &Node{
		config:   c,
		view:     keeper.NewView(c.Clock),
		waiters:  make(map[replica.CallID]*waiter),
		wakeAt:   lockkeeper.Forever,
		mail:     mailbox{more: make(chan struct{}, 1)},
		writable: make(chan struct{}, 1),
		quit:     make(chan struct{}),

		statusNews: make(chan struct{}),
	}
	n.outage.Store(&outage{began: make(chan struct{})})
	c.Replica.Applied = n.applied
	n.view.Lock()
	defer n.view.Unlock()
	now := c.Clock()
	r, err := replica.New(c.Replica, state, now)
	if err != nil {
		return nil, err
	}
	n.replica, n.contactAt, n.tickedAt = r, now, now
	n.ticks = c.Replica.ElectionTicks // it begins with no old knowledge
	n.timer = time.AfterFunc(time.Hour, n.wake)
	n.carryOut(now)
	n.running.Go(n.write)
	n.running.Go(n.makeCalls)
	n.running.Go(n.tick)
	return n, nil
}

// applied publishes a command that the replica has applied.
func (n *Node) applied(a replica.Applied) {
	step := keeper.Step{Table: a.Table, Command: a.Command, Reply: a.Answer.Reply, Refused: a.Answer.Err, Index: a.Index}
	if w := n.waiters[a.Answer.Call]; w != nil {
		step.Replied, step.Notify = true, w.notify
	}
	n.view.Applied(step)
}

// input gives the replica an input, and carries out what it asks for.
func (n *Node) input(do func(now time.Duration)) {
	n.view.Lock()
	defer n.unlock()
	if n.closed {
		return
	}
	now := n.config.Clock()
	do(now)
	n.carryOut(now)
}

// carryOut carries out what the replica asks for. The caller has locked the view.
func (n *Node) carryOut(now time.Duration) {
	out := n.replica.Output()
	n.view.Show(n.replica.Table())
	for _, m := range out.Sends {
		n.config.Transport.Send(m)
	}
	if len(out.Writes) > 0 {
		n.writes = append(n.writes, out.Writes...)
		select {
		case n.writable <- struct{}{}:
		default:
		}
	}
	n.resume()
	for _, a := range out.Answers {
		if w := n.waiters[a.Call]; w != nil {
			delete(n.waiters, a.Call)
			n.answered(w, a)
		}
	}
	if at, wakes := n.replica.Next(); wakes && at < n.wakeAt {
		n.wakeAt = at
		n.timer.Reset(max(at-now, shortestSleep))
	}
}

// shortestSleep keeps a boot clock that stands still from waking the node without pause.
const shortestSleep = time.Millisecond

func (n *Node) wake() {
	n.input(func(now time.Duration) {
		n.wakeAt = lockkeeper.Forever
		n.replica.Wake(now)
	})
}

// tick ticks the replica until the node is closed.
func (n *Node) tick() {
	ticker := time.NewTicker(n.config.Tick)
	defer ticker.Stop()
	for {
		select {
		case <-n.quit:
			return
		case <-ticker.C:
		}
		n.input(func(now time.Duration) {
			n.replica.Tick(now)
			n.followContact(now)
			n.followStatus()
			if n.steady(now) {
				n.changeMembers(now)
			}
		})
	}
}

// steady counts a tick, and reports whether the members are due: once in an election timeout, and
// after a pause of the process once two have passed. In the first one messages are received that were
// sent before the end of the pause; a node that sends nothing in the second one counts as silent.
// Without that a leader could promote a learner that was lost during the pause, and so lose the
// majority.
func (n *Node) steady(now time.Duration) bool {
	timeout := n.config.Replica.ElectionTicks
	if now-n.tickedAt >= time.Duration(timeout)*n.config.Tick {
		n.ticks = 0
	}
	n.tickedAt = now
	n.ticks++
	return n.ticks > timeout && n.ticks%timeout == 0
}

// write makes the writes durable until the node is closed or stops.
func (n *Node) write() {
	for {
		select {
		case <-n.quit:
			return
		case <-n.writable:
		}
		writes := n.takeWrites()
		if len(writes) == 0 {
			continue
		}
		err := n.writeAll(writes)
		n.input(func(now time.Duration) {
			if err != nil {
				n.replica.Failed(now, err)
			} else {
				n.replica.Persisted(now, writes[len(writes)-1].Number)
			}
		})
		if err != nil {
			return
		}
	}
}

// writeAll writes, and repeats that while it may succeed later.
func (n *Node) writeAll(writes []replica.Write) error {
	for {
		err := n.config.Storage.Write(writes)
		if err == nil || n.config.Repeat == nil || !n.config.Repeat(err) {
			return err
		}
		select {
		case <-n.quit:
			return err
		case <-time.After(repeatPause):
		}
	}
}

// repeatPause is the time between two tries to write to a full disk.
const repeatPause = 200 * time.Millisecond

func (n *Node) takeWrites() []replica.Write {
	n.view.Lock()
	defer n.view.Unlock()
	writes := n.writes
	n.writes = nil
	return writes
}

// Receive is the input of messages of other nodes. An error says what is wrong with some of them, which then
// had no effect.
func (n *Node) Receive(messages []replica.Message) (err error) {
	n.input(func(now time.Duration) {
		n.replica.Together(func() {
			for _, m := range messages {
				if refused := n.replica.Receive(now, m); refused != nil {
					err = errors.Join(err, fmt.Errorf("a message of node %016x: %w", m.From, refused))
				}
			}
		})
	})
	return err
}

// Call makes a call of this process for a caller, and returns its answer. notify is of an Attach. If ctx ends first,
// the outcome is unknown, and the error matches ErrUnavailable.
func (n *Node) Call(ctx context.Context, by replica.Caller, c table.Command, notify attached.Notify) (table.Reply,
	error) {
	a := n.ask(ctx, notify, func(now time.Duration) replica.CallID { return n.replica.CallAs(now, by, c) })
	return a.Reply, a.Err
}

// Start is Call, but it does not wait: answer is called once with the answer. It must return quickly and
// must not call a method of the node.
func (n *Node) Start(by replica.Caller, c table.Command, answer func(*table.Reply, error)) {
	n.start(func(now time.Duration) replica.CallID { return n.replica.CallAs(now, by, c) },
		func(a *replica.Answer) { answer(&a.Reply, a.Err) })
}

// Read returns when the table of this node has everything that was answered anywhere before. If ctx
// ends first, the error matches ErrUnavailable.
func (n *Node) Read(ctx context.Context) error {
	return n.ask(ctx, nil, func(now time.Duration) replica.CallID { return n.replica.Read(now) }).Err
}

// Put changes a setting of the cluster, as [replica.Replica.Put] does, and returns the revision that it
// has then.
func (n *Node) Put(ctx context.Context, s replica.Setting) (revision uint64, err error) {
	a := n.ask(ctx, nil, func(now time.Duration) replica.CallID { return n.replica.Put(now, s) })
	return a.Revision, a.Err
}

// Look calls look with the replica, whose table and settings do not change meanwhile. look must only
// read, must be quick, must not call a method of the node, and must not keep the replica.
func (n *Node) Look(look func(*replica.Replica)) {
	n.view.Lock()
	defer n.view.Unlock()
	look(n.replica)
}

// Change proposes a change of the configuration of the log with the settings that belong to it, as
// [replica.Replica.Change] does.
func (n *Node) Change(c voters.Change, with ...replica.Setting) error {
	err := replica.Unavailable(errClosed)
	n.input(func(now time.Duration) { err = n.replica.Change(now, c, with...) })
	return err
}

func refusal(cause error) replica.Answer { return replica.Answer{Err: replica.Unavailable(cause)} }

var errClosed = errors.New("the engine is closed")

// List yields what q selects from the table of this node as it is, and follows its changes if q does.
// It does not make the table current: that is what Read is for.
func (n *Node) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	return n.view.List(ctx, q)
}

// Close stops the node and waits until it has stopped. Calls without an answer end with
// ErrUnavailable. Writes may be missing on the disk: for the cluster, Close is a crash.
func (n *Node) Close() {
	n.view.Lock()
	first := !n.closed
	n.closed = true
	for id, w := range n.waiters { // order does not matter: each is answered by itself
		n.answered(w, refusal(errClosed))
		delete(n.waiters, id)
	}
	n.timer.Stop()
	if first {
		close(n.statusNews)
	}
	n.unlock()
	if first {
		close(n.quit)
		n.view.Lock()
		for _, w := range n.mail.close() {
			n.answered(w, refusal(errClosed))
		}
		n.unlock()
	}
	n.running.Wait()
	n.view.Close()
}
