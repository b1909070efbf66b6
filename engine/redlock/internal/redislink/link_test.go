package redislink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/link"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/redisconn"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Run(m)) }

// patience bounds every wait of a test for an event.
const patience = 20 * time.Second

// watched is the links of one party, and the events that they delivered.
type watched struct {
	t     *testing.T
	group *Group
	links []link.Link

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each event
	state   []string      // by server: up, down or lost
	losses  []int
	last    []error
	got     []quorum.Message
}

// watch starts a party with links to the servers.
func watch(t *testing.T, to string, servers ...*testdb.Server) *watched {
	t.Helper()
	var conns []redisconn.Server
	for _, s := range servers {
		conns = append(conns, redisconn.OwnGoRedis(&redis.Options{Addr: s.Addr()}))
	}
	return watchConns(t, to, conns)
}

func watchConns(t *testing.T, to string, conns []redisconn.Server) *watched {
	w := &watched{t: t, group: New(conns, "lockkeeper:"), changed: make(chan struct{})}
	w.links = w.group.Links()
	w.state, w.losses, w.last = make([]string, len(conns)), make([]int, len(conns)), make([]error, len(conns))
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	for i, l := range w.links {
		set := func(state string, why error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.state[i], w.last[i] = state, why
			if state == "lost" {
				w.losses[i]++
			}
			close(w.changed)
			w.changed = make(chan struct{})
		}
		watching.Go(func() {
			l.Watch(ctx, to, link.Events{
				Up:   func() { set("up", nil) },
				Down: func(why error) { set("down", why) },
				Lost: func(why error) { set("lost", why) },
				Message: func(m quorum.Message) {
					w.mu.Lock()
					w.got = append(w.got, m)
					w.mu.Unlock()
				},
			})
		})
	}
	t.Cleanup(func() {
		cancel()
		watching.Wait()
		w.group.Close()
	})
	return w
}

// await waits until cond is true of the events so far.
func (w *watched) await(what string, cond func() bool) {
	w.t.Helper()
	timeout := time.After(patience)
	for {
		w.mu.Lock()
		ok, changed := cond(), w.changed
		w.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			w.mu.Lock()
			defer w.mu.Unlock()
			w.t.Fatalf("%s: not within %v: states %v, reasons %v; the set: %v", what, patience, w.state, w.last, w.group.Err())
		}
	}
}

func (w *watched) awaitStates(states ...string) {
	w.t.Helper()
	w.await(fmt.Sprint(states), func() bool { return fmt.Sprint(w.state) == fmt.Sprint(states) })
}

// attach returns a request that opens a session.
func attach(session string, ttl time.Duration) quorum.Request {
	return quorum.Request{Kind: quorum.Attach, Session: session, Attach: quorum.AttachRequest{
		NewEpoch: 1, Nonce: "n", TTL: quorum.Micros(ttl.Microseconds()), To: "me"}}
}

func renew(session string) quorum.Request {
	return quorum.Request{Kind: quorum.Renew, Session: session, Epoch: 1}
}

// do sends one request to server i, which must be executed.
func (w *watched) do(i int, r quorum.Request) quorum.Reply {
	w.t.Helper()
	replies, err := w.links[i].Do(w.t.Context(), []quorum.Request{r})
	if err != nil {
		w.t.Fatalf("server %d: %v", i, err)
	}
	return replies[0]
}

// stalling is a server that answers nothing about its facts until it goes on.
type stalling struct {
	redisconn.Server
	goesOn chan struct{}
}

func (s *stalling) Pipeline(ctx context.Context, commands [][]any) ([]any, error) {
	if commands[0][0] == "TIME" { // the first question of Inspect
		select {
		case <-s.goesOn:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return s.Server.Pipeline(ctx, commands)
}

// A server stops between two answers while the links of all servers are coming up. The others come up
// without it.
func TestServerThatStallsDelaysNoOther(t *testing.T) {
	servers := []*testdb.Server{testdb.Redis(t), testdb.Redis(t), testdb.Redis(t)}
	watch(t, "first", servers...).awaitStates("up", "up", "up") // it makes the set
	var conns []redisconn.Server
	for _, s := range servers {
		conns = append(conns, redisconn.OwnGoRedis(&redis.Options{Addr: s.Addr()}))
	}
	stalled := &stalling{Server: conns[2], goesOn: make(chan struct{})}
	conns[2] = stalled
	w := watchConns(t, "me", conns)
	w.await("two servers up", func() bool { return w.state[0] == "up" && w.state[1] == "up" })
	close(stalled.goesOn)
	w.awaitStates("up", "up", "up")
}

// An advance waits for a server that does not answer, because no majority does. Another advance, for a
// server that has come back meanwhile, does not wait for that.
func TestAdvanceIsNotDelayedByAnother(t *testing.T) {
	servers := []*testdb.Server{testdb.Redis(t), testdb.Redis(t), testdb.Redis(t)}
	watch(t, "first", servers...).awaitStates("up", "up", "up") // it makes the set
	var conns []redisconn.Server
	for _, s := range servers {
		conns = append(conns, redisconn.OwnGoRedis(&redis.Options{Addr: s.Addr()}))
	}
	away := &awayServer{Server: conns[1], refused: make(chan struct{})}
	silent := &silentServer{Server: conns[2], asked: make(chan struct{}), answers: make(chan struct{})}
	away.away.Store(true)
	conns[1], conns[2] = away, silent
	g := New(conns, "lockkeeper:")
	defer g.Close()
	first, second := make(chan state, 1), make(chan state, 1)
	go func() { first <- g.advance(t.Context()) }()
	<-silent.asked
	<-away.refused
	away.away.Store(false)
	go func() { second <- g.advance(t.Context()) }()
	select {
	case s := <-second:
		if !s.plan.Members[0] || !s.plan.Members[1] {
			t.Errorf("the members are %v: %v", s.plan.Members, s.plan.Err)
		}
	case <-first:
		t.Error("the silent server has not answered, and the advance that waits for it has ended")
	case <-time.After(patience):
		t.Error("the second advance waits for the first")
	}
	close(silent.answers)
	<-first
}

// awayServer refuses all pipelines while away is set. It closes refused at the first one.
type awayServer struct {
	redisconn.Server
	away    atomic.Bool
	once    sync.Once
	refused chan struct{}
}

func (s *awayServer) Pipeline(ctx context.Context, commands [][]any) ([]any, error) {
	if s.away.Load() {
		s.once.Do(func() { close(s.refused) })
		return nil, redisconn.ErrUnsent
	}
	return s.Server.Pipeline(ctx, commands)
}

// silentServer answers no pipeline before answers is closed. It closes asked at the first one.
type silentServer struct {
	redisconn.Server
	once           sync.Once
	asked, answers chan struct{}
}

func (s *silentServer) Pipeline(ctx context.Context, commands [][]any) ([]any, error) {
	s.once.Do(func() { close(s.asked) })
	<-s.answers
	return s.Server.Pipeline(ctx, commands)
}

// Several parties that find empty servers at the same time make one set.
func TestFirstUseByManyPartiesMakesOneSet(t *testing.T) {
	servers := []*testdb.Server{testdb.Redis(t), testdb.Redis(t), testdb.Redis(t)}
	var parties []*watched
	for i := range 4 {
		parties = append(parties, watch(t, fmt.Sprint("p", i), servers...))
	}
	for _, p := range parties {
		p.awaitStates("up", "up", "up")
		if got, want := p.group.current().String(), parties[0].group.current().String(); got != want {
			t.Errorf("the parties have different sets: %s and %s", got, want)
		}
	}
	for i := range servers {
		if r := parties[i].do(i, attach("s", time.Second)); r.Outcome != quorum.Done {
			t.Errorf("server %d: %+v", i, r)
		}
		if r := parties[3].do(i, renew("s")); r.Outcome != quorum.Done {
			t.Errorf("server %d: %+v", i, r)
		}
	}
}

// A server that starts again without its data is lost, and takes part again when the longest lease
// that the others promise has ended, with nothing of its former data.
func TestServerWithoutItsDataStaysOut(t *testing.T) {
	servers := []*testdb.Server{testdb.Redis(t), testdb.Redis(t), testdb.Redis(t)}
	w := watch(t, "me", servers...)
	w.awaitStates("up", "up", "up")
	const ttl = 2 * time.Second
	for i := range servers {
		w.do(i, attach("s", ttl))
	}
	promised := time.Now() // the others have promised ttl from before this moment on
	before := w.do(0, renew("s"))
	if err := servers[2].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := servers[2].Start(); err != nil {
		t.Fatal(err)
	}
	w.await("the loss", func() bool { return w.losses[2] == 1 })
	w.awaitStates("up", "up", "up")
	if out := time.Since(promised); out < ttl-100*time.Millisecond {
		t.Errorf("the server took part again %v after another had promised %v more (%+v)", out, ttl, before)
	}
	if r := w.do(2, renew("s")); r.Outcome != quorum.NoSession {
		t.Errorf("the server has something of its former data: %+v", r)
	}
	if g := w.group.current().Generations[2].Count(); g != 2 {
		t.Errorf("its generation has the count %d, want 2", g)
	}
}

// A party that did not notice a loss is refused by the others before they promise it anything more.
func TestBarrierRefusesPartyThatCountsLostLife(t *testing.T) {
	servers := []*testdb.Server{testdb.Redis(t), testdb.Redis(t), testdb.Redis(t)}
	w := watch(t, "me", servers...)
	w.awaitStates("up", "up", "up")
	other := watch(t, "other", servers...)
	other.awaitStates("up", "up", "up")
	old := w.group.current()
	raised := membershipWith(t, other, 2)
	if err := other.group.servers.Merge(t.Context(), 0, raised, other.group.facts[0].RunID); err != nil {
		t.Fatal(err)
	}
	if r := w.do(0, attach("s", time.Second)); r.Outcome != quorum.Done {
		t.Fatal(r)
	}
	w.mu.Lock()
	losses := w.losses[2]
	w.mu.Unlock()
	if losses != 1 || w.group.current().Equal(old) {
		t.Errorf("the party used server 0 under %s, and noticed %d losses", w.group.current(), losses)
	}
}

// A durable server that restarts has lost nothing.
func TestDurableServerReturnsAtOnce(t *testing.T) {
	servers := []*testdb.Server{testdb.Redis(t, testdb.Durable), testdb.Redis(t), testdb.Redis(t)}
	w := watch(t, "me", servers...)
	w.awaitStates("up", "up", "up")
	w.do(0, attach("s", time.Hour))
	if err := servers[0].Kill(); err != nil {
		t.Fatal(err)
	}
	w.awaitStates("down", "up", "up")
	if err := servers[0].Start(); err != nil {
		t.Fatal(err)
	}
	w.awaitStates("up", "up", "up")
	if r := w.do(0, renew("s")); r.Outcome != quorum.Done || w.losses[0] != 0 {
		t.Errorf("%+v after %d losses", r, w.losses[0])
	}
}

// An operator has a durable server answer before it writes to disk. What it has may be replaced by old
// data at any restart, so it counts as lost as soon as that is noticed, and comes back with a new life.
func TestServerThatStopsWritingToDiskIsLost(t *testing.T) {
	servers := []*testdb.Server{testdb.Redis(t, testdb.Durable), testdb.Redis(t), testdb.Redis(t)}
	w := watch(t, "me", servers...)
	w.awaitStates("up", "up", "up")
	l := w.group.links[0]
	if err := l.review(t.Context()); err != nil {
		t.Fatalf("unchanged settings: %v", err)
	}
	_, err := l.conn.Pipeline(t.Context(), [][]any{{"CONFIG", "SET", "appendfsync", "everysec"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.review(t.Context()); !errors.Is(err, errSettings) {
		t.Fatalf("the review of changed settings: %v", err)
	}
	l.fail(errSettings) // as the review has Watch do
	w.await("the loss", func() bool { return w.losses[0] == 1 })
	w.awaitStates("up", "up", "up")
}

// If a majority has lost its data, nothing goes on.
func TestLostMajorityIsRefused(t *testing.T) {
	servers := []*testdb.Server{testdb.Redis(t), testdb.Redis(t), testdb.Redis(t)}
	w := watch(t, "me", servers...)
	w.awaitStates("up", "up", "up")
	for _, s := range servers[:2] {
		if err := errors.Join(s.Kill(), s.Start()); err != nil {
			t.Fatal(err)
		}
	}
	w.await("the refusal", func() bool { return w.group.Err() != nil && w.losses[0] == 1 && w.losses[1] == 1 })
}
