package server

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// grouped is a lockkeeper.GroupCommitter whose claims wait for a commit that the test ends, and so do
// renewals of the session "slow". It leaves claims of the path "rare" to Claim.
type grouped struct {
	lockkeeper.Engine
	begun chan struct{} // gets an element for each claim
	rare  chan struct{} // gets an element for each call of Claim

	mu     sync.Mutex
	commit *heldCommit // of the calls since the previous one ended
}

// heldCommit counts how often it is finished.
type heldCommit struct {
	done     chan struct{}
	err      error
	finished chan error // gets the result of each Finish
}

func newHeldCommit() *heldCommit {
	return &heldCommit{done: make(chan struct{}), finished: make(chan error, 2*maxAtWork)}
}

func (c *heldCommit) Done() <-chan struct{} { return c.done }

func (c *heldCommit) Finish() error {
	err := c.err
	if !isEnded(c) {
		err = lockkeeper.ErrUnavailable
	}
	c.finished <- err
	return err
}

func newGrouped(t *testing.T) *grouped {
	e := &grouped{
		Engine: memlock.New(),
		begun:  make(chan struct{}, 2*maxAtWork),
		rare:   make(chan struct{}, 1),
		commit: newHeldCommit(),
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// end ends the present commit, and returns it.
func (e *grouped) end(err error) *heldCommit {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.commit
	c.err = err
	close(c.done)
	e.commit = newHeldCommit()
	return c
}

func (e *grouped) present() *heldCommit {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.commit
}

func (e *grouped) Guarantees() lockkeeper.Guarantees {
	g := e.Engine.Guarantees()
	g.Prompt = false
	return g
}

func (e *grouped) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	e.rare <- struct{}{}
	return e.Engine.Claim(ctx, k, w)
}

func (e *grouped) BeginClaim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status,
	lockkeeper.Commit, error) {
	if w.Targets[0].Path == "rare" {
		return lockkeeper.Status{}, nil, lockkeeper.ErrNotBegun
	}
	defer func() { e.begun <- struct{}{} }()
	st, err := e.Engine.Claim(ctx, k, w)
	return st, e.present(), err
}

func (e *grouped) BeginRenew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, lockkeeper.Commit, error) {
	lease, err := e.Engine.Renew(ctx, k)
	if k.Session == "slow" {
		return lease, e.present(), err
	}
	return lease, nil, err
}

func (e *grouped) BeginEnd(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending) (lockkeeper.Commit, error) {
	return nil, e.Engine.End(ctx, k, ending)
}

func (e *grouped) BeginOpen(context.Context, lockkeeper.Session, lockkeeper.Want,
	func([]lockkeeper.Status)) (lockkeeper.Lease, lockkeeper.Commit, error) {
	panic("the server does not call it")
}

func (e *grouped) BeginLeave(context.Context, lockkeeper.Key, uint64) (lockkeeper.Status, lockkeeper.Commit, error) {
	panic("the server does not call it")
}

// wanted returns an exclusive claim.
func wanted(session string, epoch uint64, path string) *wire.Request {
	return &wire.Request{Key: &wire.Key{Session: session, Epoch: epoch}, Claim: &wire.Want{
		Targets: []*wire.Target{{Path: path, Mode: wire.Mode_MODE_EXCLUSIVE}}, Wait: -1,
	}}
}

// begin sends claims of these paths in one frame, and waits until the engine has decided them.
func (p *peer) begin(e *grouped, session string, epoch uint64, paths ...string) []*wire.Request {
	p.t.Helper()
	var all []*wire.Request
	for _, path := range paths {
		all = append(all, wanted(session, epoch, path))
	}
	p.send(&wire.ClientFrame{Requests: p.numbered(all...)})
	for range all {
		<-e.begun
	}
	return all
}

func renewal(session string, epoch uint64) *wire.Request {
	return &wire.Request{Key: &wire.Key{Session: session, Epoch: epoch}, Renew: true}
}

// A decision is sent when its commit has ended, and not before. Those of one commit share a frame.
func TestAnswersWaitForTheirCommit(t *testing.T) {
	e := newGrouped(t)
	_, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch := p.attach("ann")
	first := p.begin(e, "ann", epoch, "a", "b")
	p.answered(p.ask(renewal("ann", epoch))) // it has no commit, and overtakes
	if len(p.replies) > 0 {
		t.Fatalf("answered before the commit: %v", p.replies)
	}
	e.end(nil)
	p.until("waiting for an answer", func() bool { return len(p.replies) > 0 })
	if len(p.replies) != 2 {
		t.Errorf("%d answers in the first frame, want both of the commit", len(p.replies))
	}
	for _, m := range first {
		if r := p.answered(m.GetCall()); r.GetStatus().GetState() != wire.State_STATE_HELD {
			t.Errorf("answered by %v", r)
		}
	}
	second := p.begin(e, "ann", epoch, "c")
	p.answered(p.ask(renewal("ann", epoch)))
	if len(p.replies) > 0 {
		t.Fatalf("answered before the second commit: %v", p.replies)
	}
	e.end(nil)
	p.answered(second[0].GetCall())
}

// A refusal waits as a status does: it may rely on what is not durable yet.
func TestRefusalsWaitForTheirCommit(t *testing.T) {
	e := newGrouped(t)
	_, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch := p.attach("ann")
	all := p.begin(e, "ann", epoch+1, "a")
	p.answered(p.ask(renewal("ann", epoch)))
	if len(p.replies) > 0 {
		t.Fatalf("answered before the commit: %v", p.replies)
	}
	e.end(nil)
	if err := p.answered(all[0].GetCall()).GetError().Read(); !errors.Is(err, lockkeeper.ErrSession) {
		t.Errorf("refused with %v", err)
	}
}

// A lease that shows what is not durable waits, too.
func TestLeaseWaitsForItsCommit(t *testing.T) {
	e := newGrouped(t)
	_, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch, slow := p.attach("ann"), p.attach("slow")
	id := p.ask(renewal("slow", slow))
	all := p.begin(e, "ann", epoch, "a") // behind the renewal
	if len(p.replies) > 0 {
		t.Fatalf("answered before the commit: %v", p.replies)
	}
	e.end(nil)
	if m := p.answered(id); m.GetLease().GetEpoch() != slow {
		t.Errorf("answered by %v", m)
	}
	p.answered(all[0].GetCall())
}

// A request whose commit fails is answered once: its outcome is unknown.
func TestFailedCommitIsUnavailable(t *testing.T) {
	e := newGrouped(t)
	_, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch, slow := p.attach("ann"), p.attach("slow")
	id := p.ask(renewal("slow", slow))
	all := p.begin(e, "ann", epoch, "a", "b")
	commit := e.end(&lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "the disk fails"})
	for _, call := range []uint64{id, all[0].GetCall(), all[1].GetCall()} {
		m := p.answered(call)
		if err := m.GetError().Read(); !errors.Is(err, lockkeeper.ErrUnavailable) || m.GetStatus() != nil ||
			m.GetLease() != nil || m.GetMore() {
			t.Errorf("answered by %v", m)
		}
	}
	p.answered(p.ask(&wire.Request{Ping: true}))
	if len(p.replies) > 0 {
		t.Errorf("answered twice: %v", p.replies)
	}
	if n := len(commit.finished); n != 3 {
		t.Errorf("%d calls finished, want 3", n)
	}
}

// When the connection ends before the commit, the decision is finished, and what was granted stays
// for another connection of the session.
func TestConnectionEndsBeforeItsCommit(t *testing.T) {
	e := newGrouped(t)
	_, address := start(t, e, Options{})
	p, other := greeted(t, address), greeted(t, address)
	epoch := p.attach("ann")
	p.begin(e, "ann", epoch, "a")
	p.net.Close()
	commit := e.end(nil)
	if err := <-commit.finished; err != nil {
		t.Error(err)
	}
	m := other.answered(other.ask(&wire.Request{Attach: &wire.Session{
		Id: "ann", Ttl: 1e10, Named: []uint64{p.last}, Epoch: epoch,
	}}))
	if all := m.GetLease().GetClaims(); len(all) != 1 || all[0].GetState() != wire.State_STATE_HELD {
		t.Errorf("the session finds %v", m)
	}
}

// A server that stops answers what was decided, as soon as it is durable.
func TestShutdownWaitsForCommits(t *testing.T) {
	e := newGrouped(t)
	s, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch := p.attach("ann")
	all := p.begin(e, "ann", epoch, "a", "b")
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(t.Context()) }()
	p.until("waiting for the notice of the drain", func() bool { return p.drained != "" })
	if len(p.replies) > 0 {
		t.Fatalf("answered before the commit: %v", p.replies)
	}
	e.end(nil)
	for _, m := range all {
		p.answered(m.GetCall())
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A commit that does not end does not keep the server from ending.
func TestHangingCommitDoesNotBlockShutdown(t *testing.T) {
	e := newGrouped(t)
	s, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch := p.attach("ann")
	p.begin(e, "ann", epoch, "a", "b")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(ctx) }()
	p.until("waiting for the notice of the drain", func() bool { return p.drained != "" })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	for range 2 {
		if err := <-e.present().finished; !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("finished with %v", err)
		}
	}
}

// Decisions that wait for a commit count as running, and need no goroutine each.
func TestDecisionsAreBounded(t *testing.T) {
	e := newGrouped(t)
	_, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch := p.attach("ann")
	var all []*wire.Request
	for range maxAtWork + 100 {
		all = append(all, wanted("ann", epoch, "a"))
	}
	before := runtime.NumGoroutine()
	p.send(&wire.ClientFrame{Requests: p.numbered(all...)})
	for range maxAtWork {
		<-e.begun
	}
	other := greeted(t, address) // which is served meanwhile
	other.attach("bob")
	if len(e.begun) > 0 {
		t.Errorf("%d decisions too many", len(e.begun))
	}
	if more := runtime.NumGoroutine() - before; more > maxAtWork/10 {
		t.Errorf("%d goroutines for %d decisions", more, maxAtWork)
	}
	e.end(nil)
	for range 100 {
		<-e.begun
	}
	e.end(nil)
	for _, m := range all {
		p.answered(m.GetCall())
	}
}

// What the engine does not begin goes to its plain method.
func TestCallsThatAreNotBegun(t *testing.T) {
	e := newGrouped(t)
	_, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch := p.attach("ann")
	p.held("ann", epoch, 1, "rare")
	if len(e.rare) != 1 {
		t.Errorf("Claim was called %d times", len(e.rare))
	}
	p.release("ann", epoch, 1)
}
