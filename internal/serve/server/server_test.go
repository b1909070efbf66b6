package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// A client that does not speak the protocol gets the reason, and other clients are served.
func TestForeignBytesAreRefused(t *testing.T) {
	_, address := startMemory(t)
	friend := greeted(t, address)
	epoch := friend.attach("friend")
	t.Run("another protocol", func(t *testing.T) {
		p := connect(t, address)
		p.send(&wire.ClientFrame{Hello: &wire.Hello{Protocol: 99}})
		p.over(lockkeeper.ErrUnsupported)
	})
	t.Run("no hello", func(t *testing.T) {
		p := connect(t, address)
		p.ask(&wire.Request{Attach: &wire.Session{Id: "x", Ttl: int64(time.Minute)}})
		p.over(lockkeeper.ErrUnsupported)
	})
	for name, bytes := range map[string][]byte{
		"a long hello":    binary.AppendUvarint(nil, wire.MaxHandshake+1),
		"no varint":       bytes.Repeat([]byte{0xff}, 16),
		"no message":      append([]byte{4}, 0xff, 0xff, 0xff, 0xff),
		"a broken string": append([]byte{3}, 0x0a, 0x7f, 'x'),
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, address)
			if _, err := p.net.Write(bytes); err != nil {
				t.Fatal(err)
			}
			p.over(lockkeeper.ErrInvalid)
		})
	}
	t.Run("a frame that is too long", func(t *testing.T) {
		p := greeted(t, address)
		if _, err := p.net.Write(binary.AppendUvarint(nil, wire.MaxFrame+1)); err != nil {
			t.Fatal(err)
		}
		p.over(lockkeeper.ErrInvalid)
	})
	t.Run("a request without a number", func(t *testing.T) {
		p := greeted(t, address)
		p.send(&wire.ClientFrame{Requests: []*wire.Request{{Renew: true}}})
		p.over(lockkeeper.ErrInvalid)
	})
	friend.held("friend", epoch, 1, "a")
}

// Invalid requests are refused as any engine refuses them.
func TestInvalidRequestsAreRefused(t *testing.T) {
	_, address := startMemory(t)
	p := greeted(t, address)
	epoch := p.attach("me")
	for name, c := range map[string]struct {
		ask  *wire.Request
		want error
	}{
		"nothing":         {&wire.Request{}, lockkeeper.ErrInvalid},
		"endless session": {&wire.Request{Attach: &wire.Session{Id: "x"}}, lockkeeper.ErrInvalid},
		"no session":      {&wire.Request{Attach: &wire.Session{Ttl: int64(time.Minute)}}, lockkeeper.ErrInvalid},
		"empty claim": {&wire.Request{Key: &wire.Key{Session: "me", Epoch: epoch}, Claim: &wire.Want{}},
			lockkeeper.ErrInvalid},
		"empty end": {&wire.Request{Key: &wire.Key{Session: "me", Epoch: epoch}, End: &wire.Ending{}},
			lockkeeper.ErrInvalid},
		"old key":      {&wire.Request{Key: &wire.Key{Session: "me", Epoch: epoch + 1}, Renew: true}, lockkeeper.ErrSession},
		"nobody's key": {&wire.Request{Renew: true}, lockkeeper.ErrSession},
		"not held": {&wire.Request{
			Key: &wire.Key{Session: "me", Epoch: epoch},
			End: &wire.Ending{Kind: wire.EndingKind_ENDING_KIND_RELEASE, Id: 5},
		}, lockkeeper.ErrNotHeld},
	} {
		if m := p.answered(p.ask(c.ask)); !errors.Is(m.GetError().Read(), c.want) {
			t.Errorf("%s: %v, want %v", name, m, c.want)
		}
	}
}

// Hints go to the connection that renewed last, under the current key.
func TestHintsGoToTheLatestRenewal(t *testing.T) {
	_, address := startMemory(t)
	holder, first, second, late := greeted(t, address), greeted(t, address), greeted(t, address), greeted(t, address)
	held := holder.attach("holder")
	holder.held("holder", held, 1, "a")
	waits := first.attach("waiter")
	first.waiting("waiter", waits, 1, "a")
	renew := func(p *peer, epoch uint64) *wire.Reply {
		return p.answered(p.ask(&wire.Request{Key: &wire.Key{Session: "waiter", Epoch: epoch}, Renew: true}))
	}
	if m := renew(second, waits); m.GetLease() == nil {
		t.Fatalf("not renewed: %v", m)
	}
	if m := renew(late, waits+7); m.GetError() == nil {
		t.Fatal("a key that never was is good")
	}
	holder.release("holder", held, 1)
	second.granted("waiter", 1)
	if len(first.changed)+len(late.changed) > 0 {
		t.Error("a hint went the wrong way")
	}
}

// A draining server notifies every client. Renewals, releases, and grants to waiting claims go on.
func TestDrainKeepsClaims(t *testing.T) {
	s, address := startMemory(t)
	p, other := greeted(t, address), greeted(t, address)
	epoch, waits := p.attach("me"), other.attach("other")
	p.held("me", epoch, 1, "a")
	other.waiting("other", waits, 1, "a")
	s.Drain("moving house")
	s.Drain("a second time")
	p.until("waiting for the notice of the drain", func() bool { return p.drained == "moving house" })
	refusal := p.claim("me", epoch, 2, "b").GetError().Read()
	if !errors.Is(refusal, lockkeeper.ErrUnavailable) || !errors.Is(refusal, lockkeeper.Draining) {
		t.Errorf("a new claim: %v", refusal)
	}
	p.held("me", epoch, 1, "a") // asked for again
	if m := p.answered(p.ask(&wire.Request{Key: &wire.Key{Session: "me", Epoch: epoch},
		Renew: true})); m.GetLease() == nil {
		t.Errorf("not renewed: %v", m)
	}
	p.release("me", epoch, 1)
	other.granted("other", 1)
	late := greeted(t, address)
	late.until("waiting for the notice of the drain", func() bool { return late.drained == "moving house" })
}

// A server that is about to end sends no hints of grants: a client that relied on one might meet
// another holder at the next server. The claim keeps its position.
func TestShutdownSendsNoGrants(t *testing.T) {
	e := newSlow(t)
	s, address := start(t, e, Options{})
	p, other := greeted(t, address), greeted(t, address)
	epoch, waits := p.attach("me"), other.attach("other")
	id := other.ask(&wire.Request{
		Key:   &wire.Key{Session: "other", Epoch: waits},
		Claim: &wire.Want{Id: 1, Targets: []*wire.Target{{Path: "a", Mode: wire.Mode_MODE_EXCLUSIVE}}, Wait: -1},
	})
	<-e.asked
	key := lockkeeper.Key{Session: "me", Epoch: epoch}
	want := lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{{Path: "a", Mode: lockkeeper.ModeExclusive}}}
	if _, err := e.Engine.Claim(t.Context(), key, want); err != nil {
		t.Fatal(err)
	}
	e.let <- struct{}{}
	if m := other.answered(id); m.GetStatus().GetState() != wire.State_STATE_WAITING {
		t.Fatalf("it does not wait: %v", m)
	}
	busy := other.ask(&wire.Request{
		Key:   &wire.Key{Session: "other", Epoch: waits},
		Claim: &wire.Want{Id: 2, Targets: []*wire.Target{{Path: "b", Mode: wire.Mode_MODE_EXCLUSIVE}}},
	})
	<-e.asked // so that this connection can't end yet
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(t.Context()) }()
	other.until("waiting for the notice of the drain", func() bool { return other.drained != "" })
	if err := e.Engine.End(t.Context(), key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
		t.Fatal(err)
	}
	close(e.let)
	other.answered(busy)
	for {
		if _, err := other.frame(); err != nil {
			break
		}
	}
	if len(other.changed) > 0 {
		t.Errorf("a hint of a grant was sent: %v", other.changed)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	lease, err := e.Renew(t.Context(), lockkeeper.Key{Session: "other", Epoch: waits})
	if err != nil || len(lease.Claims) == 0 || lease.Claims[0].State != lockkeeper.Held {
		t.Errorf("the place is not kept: %v %v", lease, err)
	}
}

// slow is an engine that answers claims only when the test lets it go.
type slow struct {
	lockkeeper.Engine
	asked chan struct{}
	let   chan struct{}
}

func (e slow) Guarantees() lockkeeper.Guarantees {
	g := e.Engine.Guarantees()
	g.Prompt = false
	return g
}

func (e slow) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	e.asked <- struct{}{}
	select {
	case <-e.let:
		return e.Engine.Claim(ctx, k, w)
	case <-ctx.Done():
		return lockkeeper.Status{}, ctx.Err()
	}
}

func newSlow(t *testing.T) slow {
	e := slow{memlock.New(), make(chan struct{}, 10_000), make(chan struct{})}
	t.Cleanup(func() { e.Close() })
	return e
}

// Requests that arrived before the end are answered before the end.
func TestShutdownAnswersRequests(t *testing.T) {
	e := newSlow(t)
	s, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch := p.attach("me")
	id := p.ask(&wire.Request{
		Key:   &wire.Key{Session: "me", Epoch: epoch},
		Claim: &wire.Want{Id: 1, Targets: []*wire.Target{{Path: "a", Mode: wire.Mode_MODE_EXCLUSIVE}}},
	})
	<-e.asked
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(t.Context()) }()
	p.until("waiting for the notice of the drain", func() bool { return p.drained != "" })
	close(e.let)
	if m := p.answered(id); m.GetStatus().GetState() != wire.State_STATE_HELD {
		t.Errorf("answered by %v", m)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if nc, err := net.Dial("tcp", address); err == nil {
		nc.Close()
		t.Error("it listens still")
	}
}

// An engine that hangs does not keep the server from ending.
func TestHangingEngineDoesNotBlockShutdown(t *testing.T) {
	e := newSlow(t)
	s, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch := p.attach("me")
	p.ask(&wire.Request{
		Key:   &wire.Key{Session: "me", Epoch: epoch},
		Claim: &wire.Want{Id: 1, Targets: []*wire.Target{{Path: "a", Mode: wire.Mode_MODE_EXCLUSIVE}}},
	})
	<-e.asked
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(ctx) }()
	p.until("waiting for the notice of the drain", func() bool { return p.drained != "" })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

// A connection has a bounded number of running requests. The others wait in the network.
func TestRunningRequestsAreBounded(t *testing.T) {
	e := newSlow(t)
	_, address := start(t, e, Options{})
	p := greeted(t, address)
	epoch := p.attach("me")
	var f wire.ClientFrame
	const many = maxAtWork + 100
	for id := range uint64(many) {
		f.Requests = append(f.Requests, &wire.Request{Call: id + 10, Key: &wire.Key{Session: "me", Epoch: epoch},
			Claim: &wire.Want{
				Id: id + 1, Targets: []*wire.Target{{Path: "a", Mode: wire.Mode_MODE_SHARED}},
			}})
	}
	p.send(&f)
	for range maxAtWork {
		<-e.asked
	}
	other := greeted(t, address) // which is served meanwhile
	other.attach("other")
	if len(e.asked) > 0 {
		t.Errorf("%d requests too many are at work", len(e.asked))
	}
	close(e.let)
	p.until("all answers", func() bool { return len(p.replies) == many })
}

// Connections above the bound are refused; when one ends, another one is accepted.
func TestConnectionsAreBounded(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	bounds := limits.DefaultBounds()
	bounds.Total[limits.Connections] = 2
	_, address := start(t, e, Options{Gate: access.New(e, nil, access.Options{Limits: &bounds})})
	first, _ := greeted(t, address), greeted(t, address)
	third := connect(t, address)
	third.send(&wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol}})
	third.over(lockkeeper.Quota)
	first.net.Close()
	for {
		p := connect(t, address)
		if wire.WriteFrame(p.net, &wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol}}) == nil {
			if f, err := p.frame(); err == nil && f.GetWelcome() != nil {
				return
			}
		}
	}
}

func TestWelcomeNamesServerAndEngine(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	_, address := start(t, e, Options{Name: "lk 1.2"})
	p := connect(t, address)
	p.send(&wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol, Client: strings.Repeat("x", 2000)}})
	f, err := p.frame()
	if err != nil || f.GetWelcome().GetServer() != "lk 1.2" || f.GetWelcome().GetGuarantees().GetName() != "mem" {
		t.Errorf("%v %v", f, err)
	}
}

// spy records the arguments of Attach.
type spy struct {
	lockkeeper.Engine
	attached chan lockkeeper.Session
}

func (e spy) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	e.attached <- s
	return e.Engine.Attach(ctx, s, notify)
}

// An engine that ends sessions with their processes must not end them with the server: the next server
// finds them.
func TestSessionsOutliveTheServer(t *testing.T) {
	e := spy{memlock.New(), make(chan lockkeeper.Session, 1)}
	t.Cleanup(func() { e.Close() })
	_, address := start(t, e, Options{})
	greeted(t, address).attach("s")
	if s := <-e.attached; !s.Outlive {
		t.Error("the session ends with the server's process")
	}
}
