package server

import (
	"bufio"
	"context"
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

// guests are the identities that a server admits, with their tokens.
type guests struct {
	t       *testing.T
	gate    *access.Gate
	address string
	secrets map[string]string
	digests map[string]access.Digest
}

// startGuarded serves an engine in memory to the named identities, which may do everything but
// drain it.
func startGuarded(t *testing.T, o Options, names ...string) *guests {
	return startBounded(t, o, nil, names...)
}

// startBounded is startGuarded with other bounds than the default ones.
func startBounded(t *testing.T, o Options, bounds *limits.Bounds, names ...string) *guests {
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	g := &guests{t: t, secrets: map[string]string{}, digests: map[string]access.Digest{}}
	for _, name := range names {
		g.secrets[name], g.digests[name] = access.NewToken()
	}
	g.gate = access.New(e, g.policy(names...), access.Options{Limits: bounds})
	o.Gate = g.gate
	_, g.address = start(t, e, o)
	return g
}

// policy returns a policy that admits the named identities.
func (g *guests) policy(names ...string) *access.Policy {
	p := &access.Policy{Rules: []access.Rule{{
		Who: []string{"*"}, May: []access.Verb{access.Look, access.Lock, access.Revoke, access.Freeze}, Paths: []string{"*"},
	}}}
	for _, name := range names {
		p.Tokens = append(p.Tokens, access.Token{Name: name, Digest: g.digests[name]})
	}
	return p
}

// enter says hello with a token.
func (g *guests) enter(secret string) (*peer, error) {
	g.t.Helper()
	p := connect(g.t, g.address)
	p.send(&wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol, Token: secret}})
	_, err := p.frame()
	return p, errors.Join(err, p.refused)
}

// as returns a peer that is admitted as that identity.
func (g *guests) as(name string) *peer {
	g.t.Helper()
	p, err := g.enter(g.secrets[name])
	if err != nil {
		g.t.Fatal(err)
	}
	return p
}

// Without a valid token a client is refused, and none of the requests that it sent along is performed.
func TestClientsWithoutTokenAreRefused(t *testing.T) {
	g := startGuarded(t, Options{}, "ci")
	for name, secret := range map[string]string{
		"none":         "",
		"another":      "lk_aaaa",
		"the name":     "ci",
		"the digest":   g.digests["ci"].String(),
		"a longer one": g.secrets["ci"] + "a",
	} {
		if p, err := g.enter(secret); !errors.Is(err, lockkeeper.ErrDenied) {
			t.Errorf("%s: %v", name, err)
		} else if p.over(lockkeeper.ErrDenied); len(p.replies) > 0 {
			t.Errorf("%s: answered", name)
		}
	}
	p := connect(t, g.address)
	p.send(&wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol}, Requests: []*wire.Request{
		{Call: 1, Attach: &wire.Session{Id: "s", Ttl: int64(time.Minute)}},
	}})
	p.ask(&wire.Request{Attach: &wire.Session{Id: "s", Ttl: int64(time.Minute)}})
	if p.over(lockkeeper.ErrDenied); len(p.replies) > 0 {
		t.Errorf("requests of an unauthenticated client are answered: %v", p.replies)
	}
	g.as("ci").attach("s")
}

// Two identities may choose the same session id. Neither can use the other's session, even if it
// knows the key, and each gets only its own hints.
func TestIdentitiesCannotUseEachOthersSessions(t *testing.T) {
	g := startGuarded(t, Options{}, "alice", "mallory")
	alice, mallory := g.as("alice"), g.as("mallory")
	epoch := alice.attach("s")
	alice.held("s", epoch, 1, "a")
	for name, c := range map[string]struct {
		ask  *wire.Request
		want error
	}{
		"renew": {&wire.Request{Key: &wire.Key{Session: "s", Epoch: epoch}, Renew: true}, lockkeeper.ErrSession},
		"release": {&wire.Request{
			Key: &wire.Key{Session: "s", Epoch: epoch},
			End: &wire.Ending{Kind: wire.EndingKind_ENDING_KIND_RELEASE, Id: 1},
		}, lockkeeper.ErrSession},
		"leave": {&wire.Request{
			Key: &wire.Key{Session: "s", Epoch: epoch},
			End: &wire.Ending{Kind: wire.EndingKind_ENDING_KIND_LEAVE},
		}, lockkeeper.ErrSession},
		"by its name": {&wire.Request{Key: &wire.Key{Session: "alice:s", Epoch: epoch}, Renew: true}, lockkeeper.ErrInvalid},
		"attach by name": {&wire.Request{Attach: &wire.Session{
			Id:    "alice:s",
			Ttl:   int64(time.Minute),
			Epoch: epoch,
		}}, lockkeeper.ErrInvalid},
		"drain": {&wire.Request{Drain: &wire.Drain{}}, lockkeeper.ErrUnsupported},
	} {
		if m := mallory.answered(mallory.ask(c.ask)); !errors.Is(m.GetError().Read(), c.want) {
			t.Errorf("%s: %v, want %v", name, m, c.want)
		}
	}
	own := mallory.attach("s")
	mallory.waiting("s", own, 1, "a")
	mallory.answered(mallory.ask(&wire.Request{Key: &wire.Key{Session: "s", Epoch: own}, Renew: true}))
	alice.release("s", epoch, 1)
	mallory.granted("s", 1)
	for _, m := range append(alice.changed, mallory.changed...) {
		if m.GetSession() != "s" {
			t.Errorf("a hint names %q", m.GetSession())
		}
	}
	if len(alice.changed) > 0 {
		t.Errorf("hints about another's claims: %v", alice.changed)
	}
}

// Frames of one identity that another one replays do not touch the sessions of the first.
func TestReplayedFramesAreWorthless(t *testing.T) {
	g := startGuarded(t, Options{}, "alice", "mallory")
	alice, mallory := g.as("alice"), g.as("mallory")
	frames := []*wire.Request{{Attach: &wire.Session{Id: "s", Ttl: int64(time.Minute)}}}
	epoch := alice.answered(alice.ask(frames[0])).GetLease().GetEpoch()
	for _, m := range []*wire.Request{
		{Key: &wire.Key{Session: "s", Epoch: epoch}, Claim: &wire.Want{
			Id:      1,
			Targets: []*wire.Target{{Path: "a", Mode: wire.Mode_MODE_EXCLUSIVE}},
			Wait:    -1,
		}},
		{Key: &wire.Key{Session: "s", Epoch: epoch}, Claim: &wire.Want{
			Id:      2,
			Targets: []*wire.Target{{Path: "b", Mode: wire.Mode_MODE_EXCLUSIVE}},
			Wait:    -1,
		}},
		{Key: &wire.Key{Session: "s", Epoch: epoch}, End: &wire.Ending{Kind: wire.EndingKind_ENDING_KIND_RELEASE, Id: 2}},
		{Key: &wire.Key{Session: "s", Epoch: epoch}, Renew: true},
		{Key: &wire.Key{Session: "s", Epoch: epoch}, End: &wire.Ending{Kind: wire.EndingKind_ENDING_KIND_LEAVE}},
	} {
		frames = append(frames, m)
		if m.GetEnd().GetKind() != wire.EndingKind_ENDING_KIND_LEAVE { // alice never sends Leave
			alice.answered(alice.ask(m))
		}
	}
	for range 2 {
		for _, m := range frames {
			mallory.answered(mallory.ask(m))
		}
	}
	alice.held("s", epoch, 1, "a")
	if m := alice.answered(alice.ask(&wire.Request{Key: &wire.Key{Session: "s", Epoch: epoch},
		Renew: true})); m.GetLease() == nil {
		t.Errorf("alice's session is gone: %v", m)
	}
}

// A withdrawn token ends its connections, and no others. Its identity keeps its holds until the TTL
// ends.
func TestWithdrawnTokenEndsItsConnections(t *testing.T) {
	g := startGuarded(t, Options{}, "alice", "bob")
	alice, second, bob := g.as("alice"), g.as("alice"), g.as("bob")
	epoch, bobs := alice.attach("s"), bob.attach("s")
	alice.held("s", epoch, 1, "a")
	g.gate.Set(g.policy("bob"))
	alice.over(lockkeeper.ErrDenied)
	second.over(lockkeeper.ErrDenied)
	if _, err := g.enter(g.secrets["alice"]); !errors.Is(err, lockkeeper.ErrDenied) {
		t.Errorf("it is admitted again: %v", err)
	}
	bob.held("s", bobs, 1, "b")
	bob.waiting("s", bobs, 2, "a")
	g.gate.Set(g.policy("alice", "bob"))
	alice = g.as("alice")
	if m := alice.answered(alice.ask(&wire.Request{Key: &wire.Key{Session: "s", Epoch: epoch},
		Renew: true})); m.GetLease() == nil {
		t.Errorf("the session did not live on: %v", m)
	}
}

// The usage of one identity is bounded, and leaves room for others.
func TestUsageOfOneIdentityIsBounded(t *testing.T) {
	bounds := limits.DefaultBounds()
	bounds.Each[limits.Connections] = 3
	g := startBounded(t, Options{}, &bounds, "alice", "bob")
	first := g.as("alice")
	g.as("alice")
	third := g.as("alice")
	refused, err := g.enter(g.secrets["alice"])
	if !errors.Is(err, lockkeeper.ErrUnavailable) || !errors.Is(err, lockkeeper.Quota) {
		t.Errorf("a fourth connection of 3: %v", err)
	}
	refused.over(lockkeeper.Quota)
	bob := g.as("bob")
	for range bounds.Each[limits.BroadLists] {
		first.ask(&wire.Request{List: &wire.Query{Follow: true, Credit: 1}})
	}
	first.attach("s") // requests start in order, so the lists have begun
	if m := third.answered(third.ask(&wire.Request{List: &wire.Query{Credit: 1}})); !errors.Is(m.GetError().Read(),
		lockkeeper.Quota) {
		t.Errorf("a list too many: %v", m)
	}
	if m := bob.answered(bob.ask(&wire.Request{List: &wire.Query{Credit: 1}})); m.GetError() != nil {
		t.Errorf("a list of another: %v", m)
	}
	third.net.Close()
	first.net.Close()
	for hangs := time.Now().Add(patience); ; { // until the server notices
		p, err := g.enter(g.secrets["alice"])
		if err == nil && p.answered(p.ask(&wire.Request{List: &wire.Query{Credit: 1}})).GetError() == nil {
			break
		}
		p.net.Close()
		if time.Now().After(hangs) {
			t.Fatalf("no room is made: %v", err)
		}
	}
}

// fleeting is a connection that breaks just after the gate has admitted its client.
type fleeting struct{ net.Conn }

func (c fleeting) SetReadDeadline(at time.Time) error {
	if at.IsZero() {
		return net.ErrClosed
	}
	return c.Conn.SetReadDeadline(at)
}

// The connection of a client that leaves while the gate admits it no longer counts.
func TestClientThatLeavesAtOnceIsNotCounted(t *testing.T) {
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	g := &guests{t: t, secrets: map[string]string{}, digests: map[string]access.Digest{}}
	g.secrets["ci"], g.digests["ci"] = access.NewToken()
	s := New(e, Options{Gate: access.New(e, g.policy("ci"), access.Options{})})
	here, there := net.Pipe()
	defer here.Close()
	s.accept(fleeting{there})
	p := &peer{t: t, net: here, in: bufio.NewReader(here), replies: map[uint64]*wire.Reply{}}
	p.send(&wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol, Token: g.secrets["ci"]}})
	for {
		if _, err := p.frame(); err != nil {
			break
		}
	}
	s.ended.Wait()
	if n := s.gate.Ledger().Used(limits.Connections); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// Hints follow a session from one connection of its identity to another, even if another identity
// has a session of that id.
func TestHintsFollowTheIdentity(t *testing.T) {
	g := startGuarded(t, Options{}, "alice", "mallory", "holder")
	holder, first, second, mallory := g.as("holder"), g.as("alice"), g.as("alice"), g.as("mallory")
	held := holder.attach("s")
	holder.held("s", held, 1, "a")
	epoch := first.attach("s")
	first.waiting("s", epoch, 1, "a")
	others := mallory.attach("s")
	second.answered(second.ask(&wire.Request{Key: &wire.Key{Session: "s", Epoch: epoch}, Renew: true}))
	mallory.answered(mallory.ask(&wire.Request{Key: &wire.Key{Session: "s", Epoch: epoch}, Renew: true}))
	mallory.answered(mallory.ask(&wire.Request{Key: &wire.Key{Session: "s", Epoch: others}, Renew: true}))
	holder.release("s", held, 1)
	second.granted("s", 1)
	mallory.attach("end") // all earlier hints for it have arrived by now
	if len(mallory.changed)+len(first.changed) > 0 {
		t.Errorf("hints went astray: %v %v", mallory.changed, first.changed)
	}
}

// withdrawing is an engine during whose renewals a pass is withdrawn.
type withdrawing struct {
	lockkeeper.Engine
	withdraw func()
}

func (e *withdrawing) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	e.withdraw()
	return e.Engine.Renew(ctx, k)
}

// Requests that arrive just after the withdrawal of their pass get no refusals: the client may have
// new credentials, which it sends over its next connection.
func TestRequestsOfWithdrawnPassAreNotRefused(t *testing.T) {
	e := &withdrawing{Engine: memlock.New()}
	t.Cleanup(func() { e.Close() })
	g := &guests{t: t, secrets: map[string]string{}, digests: map[string]access.Digest{}}
	g.secrets["ci"], g.digests["ci"] = access.NewToken()
	g.gate = access.New(e, g.policy("ci"), access.Options{})
	_, g.address = start(t, e, Options{Gate: g.gate})
	e.withdraw = func() { g.gate.Set(g.policy()) }
	p := g.as("ci")
	epoch := p.attach("s")
	p.send(&wire.ClientFrame{Requests: []*wire.Request{
		{Call: 10, Key: &wire.Key{Session: "s", Epoch: epoch}, Renew: true},
		{Call: 11, Key: &wire.Key{Session: "s", Epoch: epoch}, Claim: &wire.Want{Id: 1,
			Targets: []*wire.Target{{Path: "a", Mode: wire.Mode_MODE_EXCLUSIVE}}}},
		{Call: 12, List: &wire.Query{Credit: 1}},
	}})
	p.over(lockkeeper.ErrDenied)
	if p.replies[11] != nil || p.replies[12] != nil {
		t.Errorf("answered: %v", p.replies)
	}
}

// many is an engine whose leases have so many claims that they are sent in pieces.
type many struct{ withdrawing }

func (e *many) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	lease, err := e.withdrawing.Renew(ctx, k)
	for id := range uint64(2000) {
		lease.Claims = append(lease.Claims, lockkeeper.Status{
			Ref:   lockkeeper.Ref{Session: k.Session, ID: id + 1},
			State: lockkeeper.Held,
			Label: lockkeeper.Label{Note: strings.Repeat("n", 200)},
		})
	}
	return lease, err
}

// A lease arrives completely or not at all, even if the pass is withdrawn meanwhile: a missing
// claim could state the end of a hold, which the holder must know (R12).
func TestLeaseIsCompleteThoughPassIsWithdrawn(t *testing.T) {
	e := &many{withdrawing{Engine: memlock.New()}}
	t.Cleanup(func() { e.Close() })
	g := &guests{t: t, secrets: map[string]string{}, digests: map[string]access.Digest{}}
	g.secrets["ci"], g.digests["ci"] = access.NewToken()
	g.gate = access.New(e, g.policy("ci"), access.Options{})
	_, g.address = start(t, e, Options{Gate: g.gate})
	e.withdraw = func() { g.gate.Set(g.policy()) }
	p := g.as("ci")
	p.ask(&wire.Request{Key: &wire.Key{Session: "s", Epoch: p.attach("s")}, Renew: true})
	claims, whole := 0, false
	for {
		f, err := p.frame()
		if err != nil {
			break
		}
		for _, m := range f.GetReplies() {
			claims += len(m.GetLease().GetClaims())
			whole = whole || m.GetLease() != nil && !m.GetMore()
		}
	}
	if whole && claims != 2000 {
		t.Errorf("the lease ended with %d of 2000 claims", claims)
	}
}

// Once a token is withdrawn, its connections get neither the rest of a list nor hints.
func TestWithdrawnPassGetsNothingMore(t *testing.T) {
	g := startGuarded(t, Options{}, "alice", "bob")
	alice, bob := g.as("alice"), g.as("bob")
	epoch, bobs := alice.attach("s"), bob.attach("s")
	bob.held("s", bobs, 1, "a")
	bob.held("s", bobs, 2, "b")
	alice.waiting("s", epoch, 1, "a")
	list := alice.ask(&wire.Request{List: &wire.Query{Follow: true, Credit: 1}})
	alice.answered(list) // the next status waits for credit
	g.gate.Set(g.policy("bob"))
	bob.release("s", bobs, 1)
	bob.release("s", bobs, 2)
	// This may fail, if the connection is closed already.
	_ = wire.WriteFrame(alice.net, &wire.ClientFrame{Flows: []*wire.Flow{{Call: list, Credit: 100}}})
	alice.over(lockkeeper.ErrDenied)
	if len(alice.changed) > 0 || alice.replies[list].GetStatus() != nil {
		t.Errorf("sent after the withdrawal: %v %v", alice.changed, alice.replies)
	}
}

// A slow answer to about delays no other request, even if the reader itself calls the engine.
func TestSlowAboutDelaysNobody(t *testing.T) {
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	asked, let := make(chan struct{}), make(chan struct{})
	_, address := start(t, e, Options{About: func(context.Context) lockkeeper.ServerState {
		close(asked)
		<-let
		return lockkeeper.ServerState{Version: "1.2", Held: 7}
	}})
	p := greeted(t, address)
	id := p.ask(&wire.Request{About: true})
	<-asked
	p.attach("s")
	close(let)
	if m := p.answered(id).GetAbout().Read(); m.Version != "1.2" || m.Held != 7 || m.Connections != 1 {
		t.Errorf("%+v", m)
	}
}
