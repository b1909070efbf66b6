package server

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// late is a lockkeeper.Starter whose claims are answered when the test says so. It leaves claims of the path
// "rare" to Claim.
type late struct {
	lockkeeper.Engine
	started chan func() // gets an element for each claim, which answers it
	rare    chan struct{}
}

func newLate(t *testing.T) *late {
	e := &late{memlock.New(), make(chan func(), 2*maxAtWork), make(chan struct{}, 1)}
	t.Cleanup(func() { e.Close() })
	return e
}

func (e *late) Guarantees() lockkeeper.Guarantees {
	g := e.Engine.Guarantees()
	g.Prompt = false
	return g
}

func (e *late) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	e.rare <- struct{}{}
	return e.Engine.Claim(ctx, k, w)
}

func (e *late) StartClaim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want,
	answer func(lockkeeper.Status, error)) bool {
	if w.Targets[0].Path == "rare" {
		return false
	}
	e.started <- func() { answer(e.Engine.Claim(ctx, k, w)) }
	return true
}

// StartEnd answers before it returns.
func (e *late) StartEnd(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending, answer func(error)) bool {
	answer(e.End(ctx, k, ending))
	return true
}

// starts sends claims of these paths in one frame, and returns what answers them, in the order of the paths.
func (p *peer) starts(e *late, session string, epoch uint64, paths ...string) (calls []uint64, answers []func()) {
	p.t.Helper()
	var all []*wire.Request
	for _, path := range paths {
		all = append(all, wanted(session, epoch, path))
	}
	p.send(&wire.ClientFrame{Requests: p.numbered(all...)})
	for _, m := range all {
		calls, answers = append(calls, m.GetCall()), append(answers, <-e.started)
	}
	return calls, answers
}

// A call is answered when the engine answers it, in any order, and by what the engine says.
func TestStartedCallsAreAnsweredInAnyOrder(t *testing.T) {
	e := newLate(t)
	_, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch := p.attach("ann")
	calls, answers := p.starts(e, "ann", epoch, "a", "b", "c")
	p.answered(p.ask(&wire.Request{Ping: true})) // it overtakes
	if len(p.replies) > 0 {
		t.Fatalf("answered before the engine has answered: %v", p.replies)
	}
	for _, i := range []int{2, 0, 1} {
		answers[i]()
		if r := p.answered(calls[i]); r.GetStatus().GetState() != wire.State_STATE_HELD {
			t.Errorf("call %d is answered by %v", i, r)
		}
	}
	calls, answers = p.starts(e, "ann", epoch+1, "a")
	answers[0]()
	if err := p.answered(calls[0]).GetError().Read(); !errors.Is(err, lockkeeper.ErrSession) {
		t.Errorf("refused with %v", err)
	}
}

// What the engine does not start goes to its plain method, and an answer may come at once.
func TestCallsThatAreNotStarted(t *testing.T) {
	e := newLate(t)
	_, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch := p.attach("ann")
	p.held("ann", epoch, 1, "rare")
	if len(e.rare) != 1 {
		t.Errorf("Claim was called %d times", len(e.rare))
	}
	p.release("ann", epoch, 1)
}

// A started call is answered to nobody when its connection has ended, and what it got stays for another
// connection of the session.
func TestConnectionEndsBeforeItsAnswer(t *testing.T) {
	e := newLate(t)
	_, address := start(t, e, Options{})
	p, other := greeted(t, address), greeted(t, address)
	epoch := p.attach("ann")
	_, answers := p.starts(e, "ann", epoch, "a")
	p.net.Close()
	answers[0]()
	m := other.answered(other.ask(&wire.Request{Attach: &wire.Session{
		Id: "ann", Ttl: 1e10, Named: []uint64{p.last}, Epoch: epoch,
	}}))
	if all := m.GetLease().GetClaims(); len(all) != 1 || all[0].GetState() != wire.State_STATE_HELD {
		t.Errorf("the session finds %v", m)
	}
}

// A server that stops waits for the answers of the engine.
func TestShutdownWaitsForStartedCalls(t *testing.T) {
	e := newLate(t)
	s, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch := p.attach("ann")
	calls, answers := p.starts(e, "ann", epoch, "a", "b")
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(t.Context()) }()
	p.until("waiting for the notice of the drain", func() bool { return p.drained != "" })
	for i := range answers {
		answers[i]()
		p.answered(calls[i])
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// An engine that does not answer does not keep the server from ending, and may answer afterwards.
func TestMissingAnswerDoesNotBlockShutdown(t *testing.T) {
	e := newLate(t)
	s, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch := p.attach("ann")
	_, answers := p.starts(e, "ann", epoch, "a", "b")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(ctx) }()
	p.until("waiting for the notice of the drain", func() bool { return p.drained != "" })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	for _, answer := range answers {
		answer()
	}
}

// Started calls count as running, and need no goroutine each.
func TestStartedCallsAreBounded(t *testing.T) {
	e := newLate(t)
	_, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch := p.attach("ann")
	var all []*wire.Request
	for range maxAtWork + 100 {
		all = append(all, wanted("ann", epoch, "a"))
	}
	before := runtime.NumGoroutine()
	p.send(&wire.ClientFrame{Requests: p.numbered(all...)})
	var answers []func()
	for range maxAtWork {
		answers = append(answers, <-e.started)
	}
	other := greeted(t, address) // which is served meanwhile
	other.attach("bob")
	if len(e.started) > 0 {
		t.Errorf("%d calls too many", len(e.started))
	}
	if more := runtime.NumGoroutine() - before; more > maxAtWork/10 {
		t.Errorf("%d goroutines for %d calls", more, maxAtWork)
	}
	for _, answer := range answers {
		answer()
	}
	for range 100 {
		(<-e.started)()
	}
	for _, m := range all {
		p.answered(m.GetCall())
	}
}
