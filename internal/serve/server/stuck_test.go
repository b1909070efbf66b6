package server

import (
	"context"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// stuck is an engine that holds up claims of the path "stuck" and renewals of the session "slow"
// until the test lets them go, as an engine whose disk is full does.
type stuck struct {
	lockkeeper.Engine
	claims, renewals gate
}

// A gate holds calls up until the test lets them go.
type gate struct {
	came chan struct{} // each call sends one element
	let  chan struct{} // each element lets one call go
}

func newGate() gate { return gate{make(chan struct{}, 2*maxAtWork), make(chan struct{})} }

func (g gate) pass(ctx context.Context) error {
	g.came <- struct{}{}
	select {
	case <-g.let:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newStuck(t *testing.T) *stuck {
	e := &stuck{memlock.New(), newGate(), newGate()}
	t.Cleanup(func() { e.Close() })
	return e
}

func (e *stuck) Guarantees() lockkeeper.Guarantees {
	g := e.Engine.Guarantees()
	g.Prompt = false
	return g
}

func (e *stuck) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if w.Targets[0].Path == "stuck" {
		if err := e.claims.pass(ctx); err != nil {
			return lockkeeper.Status{}, err
		}
	}
	return e.Engine.Claim(ctx, k, w)
}

func (e *stuck) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	if k.Session == "slow" {
		if err := e.renewals.pass(ctx); err != nil {
			return lockkeeper.Lease{}, err
		}
	}
	return e.Engine.Renew(ctx, k)
}

// numbered gives the requests call numbers, which are also the ids of their claims.
func (p *peer) numbered(all ...*wire.Request) []*wire.Request {
	for _, m := range all {
		p.last++
		m.Call = p.last
		if m.Claim != nil {
			m.Claim.Id = p.last
		}
	}
	return all
}

// stuckClaims returns maxAtWork claims that the engine holds up.
func stuckClaims(session string, epoch uint64) []*wire.Request {
	all := make([]*wire.Request, maxAtWork)
	for i := range all {
		all[i] = &wire.Request{Key: &wire.Key{Session: session, Epoch: epoch}, Claim: &wire.Want{
			Targets: []*wire.Target{{Path: "stuck", Mode: wire.Mode_MODE_SHARED}}, Wait: -1,
		}}
	}
	return all
}

// A connection with maxAtWork running requests, and more that have arrived, still gets answers and
// hints.
func TestAnswersAreSentWhileEngineIsStuck(t *testing.T) {
	e := newStuck(t)
	_, address := start(t, e, Options{})
	p, other := greeted(t, address), greeted(t, address)
	epoch, others := p.attach("ann"), other.attach("bob")
	other.held("bob", others, 1, "db")
	p.waiting("ann", epoch, 1, "db")
	renew := func() *wire.Request { return &wire.Request{Key: &wire.Key{Session: "ann", Epoch: epoch}, Renew: true} }
	requests := p.numbered(append(append([]*wire.Request{renew()}, stuckClaims("ann", epoch)...), renew())...)
	p.send(&wire.ClientFrame{Requests: requests})
	for range maxAtWork {
		<-e.claims.came
	}
	if m := p.answered(requests[0].GetCall()); m.GetError() != nil {
		t.Error(m.GetError().Read())
	}
	other.release("bob", others, 1)
	p.granted("ann", 1)
	close(e.claims.let)
	for _, m := range requests[1:] {
		p.answered(m.GetCall())
	}
}

// While the server stops, it sends each answer at once, and not with the last one.
func TestAnswersAreSentWhileStopping(t *testing.T) {
	e := newStuck(t)
	s, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch, slow := p.attach("ann"), p.attach("slow")
	requests := p.numbered(append(stuckClaims("ann", epoch),
		&wire.Request{Key: &wire.Key{Session: "slow", Epoch: slow}, Renew: true})...)
	var out wire.Outbox
	out.PutFrame(&wire.ClientFrame{Requests: requests})
	out.PutFrame(&wire.ClientFrame{Flows: []*wire.Flow{{Call: 1}}}) // it arrives, and the server does not read it
	if _, err := p.net.Write(out.Take(nil)); err != nil {
		t.Fatal(err)
	}
	for range maxAtWork {
		<-e.claims.came
	}
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(t.Context()) }()
	p.until("waiting for Draining", func() bool { return p.drained != "" })
	e.claims.let <- struct{}{} // now there is room for the last request
	<-e.renewals.came
	close(e.claims.let)
	for _, m := range requests[:maxAtWork] {
		p.answered(m.GetCall())
	}
	close(e.renewals.let)
	p.answered(requests[maxAtWork].GetCall())
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
