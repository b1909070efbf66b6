package quorumlock

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/node"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/peers"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/storage"
)

// A host is what a node has on its machine: its folder, its listener, its connections to others.
type host struct {
	config    Config
	opened    time.Time
	store     *storage.Store
	keys      *join.Credentials
	transport *peers.Transport
	port      *port
	known     []join.Node               // the members when this node joined
	full      atomic.Pointer[string]    // why nothing can be written, while the disk is full
	changed   chan struct{}             // filled when a setting has changed
	ready     atomic.Bool               // a leader had contact with this node
	refusedAt atomic.Pointer[time.Time] // when another node refused this one, because it was removed
	stated    stated
	policy    policy
	names     map[uint64]string // of nodes, by id; guarded by the lock of the node

	life    context.Context // ends with Close
	end     context.CancelFunc
	running sync.WaitGroup
	closing sync.Once
}

// Open runs the node of a folder that Found or Join has made, until Close. It returns when the node
// listens; calls wait for the cluster by themselves. ctx limits the time to read and check the folder.
//
// If the folder has no node, the error is an ErrInvalid that says what to do; also if it has lost
// something, for then the node must not run under its id again. If another process has the folder or
// the address, the error is an ErrUnavailable.
func Open(ctx context.Context, folder string, c Config) (*Engine, error) {
	if _, err := c.address(); err != nil {
		return nil, err
	}
	store, err := storage.Open(ctx, folder, storage.Identity{})
	if err != nil {
		return nil, err
	}
	h := &host{config: c, opened: time.Now(), store: store, changed: make(chan struct{}, 1)}
	h.names, h.policy.changed = make(map[uint64]string), make(chan struct{})
	h.stated.changed = make(chan struct{})
	h.life, h.end = context.WithCancel(context.Background())
	e, err := h.start(folder)
	if err != nil {
		h.end()
		return nil, errors.Join(err, store.Close())
	}
	return e, nil
}

// start starts everything. If it fails, nothing runs.
func (h *host) start(folder string) (*Engine, error) {
	state, err := h.store.State()
	if err != nil {
		return nil, err
	}
	if h.known, err = join.KnownMembers(folder); err != nil {
		return nil, err
	}
	if state.Snapshot == nil && len(h.known) == 0 {
		return nil, lockkeeper.Invalid("%s has a node that has not joined its cluster yet: join again with the same token",
			folder)
	}
	if h.keys, err = join.OpenCredentials(folder, join.Identity(h.store.Identity())); err != nil {
		return nil, err
	}
	if life := h.config.certificateLife; life > 0 {
		h.keys.Shorten(life)
	}
	e := &Engine{host: h}
	if err = h.connect(e); err != nil {
		return nil, err
	}
	var listener net.Listener
	if err = e.run(state); err == nil {
		if listener, err = h.listen(e); err != nil {
			e.node.Close()
		}
	}
	if err != nil {
		h.transport.Close()
		return nil, err
	}
	h.serve(e, listener)
	return e, nil
}

// listen listens for other nodes: at Config.Listen, else where the cluster knows this node.
func (h *host) listen(e *Engine) (net.Listener, error) {
	at := h.config.Listen
	if at == "" {
		address, err := h.knownAddress(e)
		if err != nil {
			return nil, err
		}
		at = address.String()
	}
	return listenAt(h.life, at)
}

// listenAt listens for other nodes.
func listenAt(ctx context.Context, at string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", at)
	if err != nil {
		return nil, &lockkeeper.Error{
			Err:    lockkeeper.ErrUnavailable,
			Detail: fmt.Sprintf("can't listen for other nodes at %q", at),
			Cause:  err,
		}
	}
	return l, nil
}

// knownAddress returns the address at which the cluster knows this node, as far as this node knows.
func (h *host) knownAddress(e *Engine) (netip.AddrPort, error) {
	own := h.store.Identity()
	n, err := memberOf(e.Settings().Known(), own.Name)
	if err != nil || n.ID == own.ID {
		return n.Address, err
	}
	for i := range h.known {
		if h.known[i].ID == own.ID {
			return h.known[i].Address, nil
		}
	}
	if h.isRemoved(e.Settings().Known()) {
		return netip.AddrPort{}, lockkeeper.Invalid("this node was removed from the cluster: to use the machine again, " +
			"empty its folder, and join with a new token")
	}
	return netip.AddrPort{}, lockkeeper.Invalid("this node does not know where to listen for other nodes: name the " +
		"address")
}

// connect makes the transport, without peers.
func (h *host) connect(e *Engine) (err error) {
	id := h.store.Identity()
	address, err := h.config.address()
	if err != nil {
		return err
	}
	stated := ""
	if address.IsValid() {
		stated = address.String()
	}
	h.transport, err = peers.New(peers.Settings{
		Cluster:     id.Cluster,
		ID:          id.ID,
		Address:     stated,
		Credentials: h.keys.Present,
		Identify: func(cert *x509.Certificate) (string, uint64, error) {
			p, err := join.ParsePeer(cert)
			return p.Cluster, p.ID, err
		},
		Allow: func(cert *x509.Certificate) error {
			p, err := join.ParsePeer(cert)
			if err != nil {
				return err
			}
			return join.Allowed(e.Settings().Known(), p)
		},
		Receive: func(messages []replica.Message) {
			if err := e.node.Receive(messages); err != nil {
				h.config.log().Warn("messages of other nodes are refused", "error", err)
			}
		},
		Log: h.config.log(),
	})
	return err
}

// run starts the replica.
func (e *Engine) run(state replica.State) (err error) {
	h := e.host
	e.node, err = node.New(withDefaults(node.Config{
		Replica: replica.Config{
			ID:          h.store.Identity().ID,
			Incarnation: join.DrawID(),
			Changed:     h.settingChanged,
			Audit:       h.audit,
		},
		Storage:   h,
		Repeat:    func(err error) bool { return errors.Is(err, storage.ErrFull) },
		Transport: h.transport,
		Clock:     lockkeeper.NewBootClock(),
		Members:   members(h.silent),
		Wished:    wished,
	}), state)
	return err
}

// serve connects the node with others.
func (h *host) serve(e *Engine, l net.Listener) {
	server := &join.Server{Settings: e.Settings(), Credentials: h.keys, Log: h.config.log()}
	h.port = newPort(l, server.ServeConn, h.config.log())
	h.running.Go(func() { _ = h.transport.Serve(h.port) }) // ends when either is closed
	h.stateMembers(nil)                                    // before Open returns, the cluster's id is known
	h.running.Go(func() { h.follow(e) })
	h.running.Go(func() { h.followSuspension(e) })
	h.running.Go(func() {
		if _, err := e.node.Await(h.life, func(s replica.Status) bool { return s.Contact }); err == nil {
			h.ready.Store(true)
		}
	})
}

// settingChanged implements replica.Config.Changed. The node is locked.
func (h *host) settingChanged(_ uint64, s replica.Setting) {
	if s.Key == replica.PolicyKey {
		h.policy.set(s.Value)
	}
	var n join.Node
	if strings.HasPrefix(s.Key, nodeKeys) && json.Unmarshal(s.Value, &n) == nil {
		h.names[n.ID] = n.Name
	}
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// Write implements node.Storage. It notes whether the disk is full.
func (h *host) Write(writes []replica.Write) error {
	err := h.store.Write(writes)
	switch full := errors.Is(err, storage.ErrFull); {
	case full && h.full.Load() == nil:
		why := err.Error()
		h.full.Store(&why)
		h.config.log().Error("this node can't write, and goes on when the disk has room", "error", err)
	case err == nil && h.full.Load() != nil:
		h.full.Store(nil)
		h.config.log().Info("the disk has room again")
	}
	return err
}

// silent returns for how long a node outside the configuration has not answered.
func (h *host) silent(id uint64) time.Duration {
	if at := h.refusedAt.Load(); at != nil {
		return max(time.Since(*at), 1)
	}
	for _, p := range h.transport.Status() {
		if p.ID == id && p.Connected {
			return 0
		}
		if p.ID == id && !p.Since.IsZero() {
			return max(time.Since(p.Since), 1)
		}
	}
	return max(time.Since(h.opened), 1)
}

// correctEvery is how often a node that failed to state its addresses tries again.
const correctEvery = 2 * time.Second

// follow keeps the connections as the settings say, until Close.
func (h *host) follow(e *Engine) {
	again := time.NewTicker(correctEvery)
	defer again.Stop()
	connected := make(map[uint64]bool)
	h.connectMembers(e.Settings().Known(), connected)
	for {
		select {
		case <-h.life.Done():
			return
		case <-h.changed:
			h.connectMembers(e.Settings().Known(), connected)
		case <-again.C:
			if h.refused() {
				h.connectMembers(e.Settings().Known(), connected)
				continue
			}
			ctx, cancel := context.WithTimeout(h.life, correctEvery)
			err := e.correctAddresses(ctx)
			cancel()
			if err != nil && h.life.Err() == nil {
				h.config.log().Warn("this node can't state its addresses yet", "error", err, "again_in", correctEvery)
			}
		}
	}
}

// connectMembers lets the transport connect to the members, and to nobody else; to nobody at all if this node
// was removed. connected are the ids that it had before.
func (h *host) connectMembers(v join.View, connected map[uint64]bool) {
	members, err := join.Nodes(v)
	if err != nil {
		h.config.log().Error("this node can't read who the members of the cluster are", "error", err)
		return
	}
	if len(members) == 0 { // this node has nothing of the log yet
		members = h.known
	}
	present := make(map[uint64]bool)
	for i := range members {
		if h.refused() {
			break
		}
		h.transport.Set(members[i].ID, members[i].Address.String())
		present[members[i].ID], connected[members[i].ID] = true, true
	}
	for id := range connected {
		if !present[id] {
			h.transport.Remove(id)
			delete(connected, id)
		}
	}
	h.transport.CheckAllowed()
	h.stateMembers(members)
}

// correctAddresses states the addresses of this node, and whether it is open, if the cluster knows something else.
func (e *Engine) correctAddresses(ctx context.Context) error {
	c, own := &e.host.config, e.host.store.Identity()
	address, err := c.address()
	if err != nil {
		return err
	}
	correct := func(n *join.Node) error {
		if address.IsValid() {
			n.Address = address
		}
		if c.ClientAddress != "" {
			n.Clients = c.ClientAddress
		}
		n.Open = c.Open
		return nil
	}
	n, err := memberOf(e.Settings().Known(), own.Name)
	if err != nil || n.ID != own.ID || !e.node.Status().Contact {
		return err
	}
	corrected := n
	if _ = correct(&corrected); corrected == n {
		return nil
	}
	return e.changeMember(ctx, own.Name, own.ID, correct)
}

// close hands over and ends everything of an Engine. It waits until all of it has ended.
func (h *host) close(e *Engine) (err error) {
	h.closing.Do(func() {
		e.handOver()
		err = h.stop(e)
	})
	return err
}

// stop ends everything of an Engine. It is called once.
func (h *host) stop(e *Engine) error {
	h.end()
	h.port.Close()
	h.transport.Close()
	h.running.Wait()
	h.port.wait()
	e.node.Close()
	return h.store.Close()
}
