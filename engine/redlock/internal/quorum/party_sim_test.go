package quorum

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A sim runs parties and servers in virtual time. Requests and messages take random times, and may
// be lost.
type sim struct {
	*testing.T
	random  *rand.Rand
	now     time.Duration
	servers []*Server
	clocks  []Micros // of the servers, at boot time 0
	dead    []bool
	silent  []bool        // the server executes nothing, and its clients notice that after silence
	cut     map[link]bool // the party and the server can't reach each other
	parties []*Party
	events  []event
	order   int
	fastest time.Duration
	slowest time.Duration // beyond fastest
	lose    float64
	answers map[*Party]map[CallID]Answer
	notices map[*Party][]lockkeeper.Status
	sends   map[Kind]int
	paused  map[*Party]time.Duration // until when the process stands still
	fences  map[fenceKey]lockkeeper.Ref
	grants  int
}

type event struct {
	at    time.Duration
	order int
	do    func()
}

type link struct {
	p      *Party
	server int
}

// silence is after how long a request to a silent server fails.
const silence = 3 * time.Second

func newSim(t *testing.T, servers, parties int, seed uint64) *sim {
	s := &sim{
		T: t, random: rand.New(rand.NewPCG(seed, 1)), now: time.Hour, slowest: 500 * time.Microsecond,
		dead: make([]bool, servers), silent: make([]bool, servers),
		answers: make(map[*Party]map[CallID]Answer), notices: make(map[*Party][]lockkeeper.Status),
		cut:   make(map[link]bool),
		sends: make(map[Kind]int), paused: make(map[*Party]time.Duration),
	}
	for i := range servers {
		s.servers = append(s.servers, NewServer(Limits{}))
		s.clocks = append(s.clocks, Micros(1_800_000_000_000_000+i*12345))
	}
	for i := range parties {
		p := NewParty(Settings{Servers: servers, To: fmt.Sprint(i), Seed: seed + uint64(i)})
		s.parties = append(s.parties, p)
		s.answers[p] = make(map[CallID]Answer)
		for k := range servers {
			p.Up(s.now, k)
		}
		s.collect(p)
	}
	s.run(10 * time.Millisecond)
	clear(s.sends)
	return s
}

func (s *sim) clock(server int) Micros { return s.clocks[server] + micros(s.now) }

func (s *sim) after(d time.Duration, do func()) {
	s.order++
	e := event{s.now + d, s.order, do}
	i, _ := slices.BinarySearchFunc(s.events, e, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order))
	})
	s.events = slices.Insert(s.events, i, e)
}

// deliver runs do for a party after d, or when the party goes on.
func (s *sim) deliver(p *Party, d time.Duration, do func()) {
	s.after(d, func() {
		if rest := s.paused[p] - s.now; rest > 0 {
			s.deliver(p, rest, do)
			return
		}
		do()
		s.collect(p)
	})
}

func (s *sim) delay() time.Duration {
	return s.fastest + time.Duration(1+s.random.Int64N(int64(s.slowest)))
}

// collect takes the output of p, and puts it on its way.
func (s *sim) collect(p *Party) {
	out := p.Output()
	for _, a := range out.Answers {
		if _, twice := s.answers[p][a.Call]; twice {
			s.Fatalf("call %d is answered twice", a.Call)
		}
		s.answers[p][a.Call] = a
	}
	for _, n := range out.Notices {
		s.notices[p] = append(s.notices[p], n.Statuses...)
	}
	for _, send := range out.Sends {
		s.sends[send.Request.Kind]++
		sent := s.now
		if s.silent[send.Server] {
			s.deliver(p, silence, func() { p.Failed(s.now, send.Number, false) })
			continue
		}
		if s.random.Float64() < s.lose {
			s.deliver(p, 20*time.Millisecond, func() { p.Failed(s.now, send.Number, false) })
			if s.random.IntN(2) == 0 {
				continue // the server executes it, and the answer is lost
			}
			s.after(s.delay(), func() { s.apply(send.Server, send.Request) })
			continue
		}
		s.after(s.delay(), func() {
			if s.dead[send.Server] || s.cut[link{p, send.Server}] {
				s.deliver(p, 0, func() { p.Failed(s.now, send.Number, false) })
				return
			}
			r := s.apply(send.Server, send.Request)
			s.deliver(p, s.delay(), func() { p.Reply(s.now, send.Number, sent, r) })
		})
	}
}

func (s *sim) apply(server int, r Request) Reply {
	reply, messages := s.servers[server].Apply(s.clock(server), r)
	for _, m := range messages {
		for i, p := range s.parties {
			if m.To == fmt.Sprint(i) && s.random.Float64() >= s.lose && !s.cut[link{p, server}] {
				s.deliver(p, s.delay(), func() { p.Message(s.now, server, m) })
			}
		}
	}
	return reply
}

// run lets time pass.
func (s *sim) run(d time.Duration) {
	end := s.now + d
	for {
		at, tick := end, -1
		for i, p := range s.parties {
			if next := max(p.Next(), s.paused[p]); p.Next() != 0 && next < at {
				at, tick = next, i
			}
		}
		switch {
		case len(s.events) > 0 && s.events[0].at <= at:
			e := s.events[0]
			s.events = s.events[1:]
			s.now = max(s.now, e.at)
			e.do()
		case tick >= 0:
			s.now = max(s.now, at)
			s.parties[tick].Tick(s.now)
			s.collect(s.parties[tick])
		default:
			s.now = end
			return
		}
	}
}

// await runs until the call is answered.
func (s *sim) await(p *Party, id CallID) Answer {
	s.Helper()
	s.collect(p)
	for range 3000 {
		if a, ok := s.answers[p][id]; ok {
			return a
		}
		s.run(time.Millisecond)
	}
	s.Fatalf("call %d is not answered", id)
	return Answer{}
}

// user is a session of one party, as a client uses it.
type user struct {
	*sim
	p   *Party
	key lockkeeper.Key
	id  uint64
	ttl time.Duration
}

func (s *sim) user(p int, name string) *user {
	s.Helper()
	u := &user{sim: s, p: s.parties[p], ttl: 10 * time.Second}
	u.key.Session = name
	u.attach()
	return u
}

func (u *user) attach(named ...uint64) lockkeeper.Lease {
	u.Helper()
	a := u.await(u.p, u.p.Attach(u.now, lockkeeper.Session{
		ID: u.key.Session, TTL: u.ttl, Epoch: u.key.Epoch, Named: named,
	}))
	if a.Err != nil {
		u.Fatalf("attach %s: %v", u.key.Session, a.Err)
	}
	u.key = a.Lease.Key
	return a.Lease
}

func (u *user) renew() lockkeeper.Lease {
	u.Helper()
	a := u.await(u.p, u.p.Renew(u.now, u.key))
	if a.Err != nil {
		u.Fatalf("renew %s: %v", u.key.Session, a.Err)
	}
	return a.Lease
}

func (u *user) claim(w lockkeeper.Want) lockkeeper.Status {
	u.Helper()
	if w.ID == 0 {
		u.id++
		w.ID = u.id
	}
	a := u.await(u.p, u.p.Claim(u.now, u.key, w))
	if a.Err != nil {
		u.Fatalf("claim %s.%d: %v", u.key.Session, w.ID, a.Err)
	}
	u.key.LowestOpen = max(u.key.LowestOpen, w.ID+1) // every claim before it has its answer, too
	return a.Status
}

func want(paths string, wait time.Duration) lockkeeper.Want {
	w := lockkeeper.Want{Wait: wait}
	for _, path := range strings.Fields(paths) {
		w.Targets = append(w.Targets, lockkeeper.Target{Path: lockkeeper.Path(path), Mode: lockkeeper.ModeExclusive})
	}
	return w
}

func (u *user) release(id uint64) error {
	u.Helper()
	return u.await(u.p, u.p.End(u.now, u.key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: id})).Err
}

// latest returns the latest status of the claim of which the client was notified.
func (u *user) latest(id uint64) lockkeeper.Status {
	var found lockkeeper.Status
	for _, st := range u.notices[u.p] {
		if st.Ref == (lockkeeper.Ref{Session: u.key.Session, ID: id}) && st.Change > found.Change {
			found = st
		}
	}
	return found
}

func (s *sim) must(st lockkeeper.Status, state lockkeeper.State, why lockkeeper.Reason) lockkeeper.Status {
	s.Helper()
	if st.State != state || st.Reason != why {
		s.Fatalf("the claim is %s (%s), want %s (%s): %+v", st.State, st.Reason, state, why, st)
	}
	return st
}

func each(t *testing.T, parties int, test func(s *sim)) {
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { test(newSim(t, n, parties, 7)) })
	}
}

func TestFreeClaimIsGrantedInOneRoundTrip(t *testing.T) {
	each(t, 1, func(s *sim) {
		u := s.user(0, "u")
		s.run(time.Second)
		clear(s.sends)
		first := s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
		if err := u.release(u.id); err != nil {
			s.Fatal(err)
		}
		s.run(time.Second)
		n := len(s.servers)
		if s.sends[Claim] != n || s.sends[End] != n || len(s.sends) != 2 {
			s.Errorf("sent %v, want %d claims and %d ends", s.sends, n, n)
		}
		second := s.must(u.claim(want("a b", lockkeeper.Forever)), lockkeeper.Held, 0)
		if second.Fence <= first.Fence || second.Unconfirmed {
			s.Errorf("fence %d after %d, unconfirmed %v", second.Fence, first.Fence, second.Unconfirmed)
		}
	})
}

func TestTryIsRefusedWithTheHolder(t *testing.T) {
	each(t, 2, func(s *sim) {
		u, v := s.user(0, "u"), s.user(1, "v")
		u.claim(want("a", 0))
		st := s.must(v.claim(want("a", 0)), lockkeeper.Ended, lockkeeper.TimedOut)
		if len(st.Blockers) == 0 || st.Blockers[0].Ref.Session != "u" || st.Blockers[0].Why != lockkeeper.HeldBy {
			s.Errorf("blockers %+v", st.Blockers)
		}
		u.release(1)
		s.run(100 * time.Millisecond)
		s.must(v.claim(want("a", 0)), lockkeeper.Held, 0)
	})
}

func TestWaiterIsGrantedByTheRelease(t *testing.T) {
	each(t, 2, func(s *sim) {
		u, v := s.user(0, "u"), s.user(1, "v")
		first := u.claim(want("a", 0))
		s.must(v.claim(want("a", lockkeeper.Forever)), lockkeeper.Waiting, 0)
		s.run(time.Second)
		u.release(1)
		s.run(10 * time.Millisecond)
		if st := s.must(v.latest(1), lockkeeper.Held, 0); st.Fence <= first.Fence {
			s.Errorf("fence %d after %d", st.Fence, first.Fence)
		}
	})
}

func TestBoundedWaitTimesOut(t *testing.T) {
	each(t, 2, func(s *sim) {
		u, v := s.user(0, "u"), s.user(1, "v")
		u.claim(want("a", 0))
		s.must(v.claim(want("a", time.Second)), lockkeeper.Waiting, 0)
		s.run(1100 * time.Millisecond)
		s.must(v.latest(1), lockkeeper.Ended, lockkeeper.TimedOut)
		u.release(1)
		s.run(100 * time.Millisecond)
		s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
	})
}

func TestDeadHolderIsSucceeded(t *testing.T) {
	each(t, 2, func(s *sim) {
		u, v := s.user(0, "u"), s.user(1, "v")
		u.claim(want("a", 0))
		v.claim(want("a", lockkeeper.Forever))
		for range 6 {
			s.run(2 * time.Second)
			v.renew()
		}
		s.must(v.latest(1), lockkeeper.Held, 0)
		if a := s.await(u.p, u.p.Renew(s.now, u.key)); a.Err == nil {
			s.Error("the session that was not renewed lives")
		}
	})
}

func TestThiefIsGrantedAfterTheBound(t *testing.T) {
	for _, acks := range []bool{false, true} {
		each(t, 2, func(s *sim) {
			u, v := s.user(0, "u"), s.user(1, "v")
			u.claim(want("a", 0))
			w := want("a", lockkeeper.Forever)
			w.Priority, w.Steal, w.After = 1, lockkeeper.Take, 2*time.Second
			s.must(v.claim(w), lockkeeper.Waiting, 0)
			s.run(10 * time.Millisecond)
			asked := u.latest(1).Asked
			if asked == nil || asked.By.Session != "v" || asked.Left > 2*time.Second || asked.Left < 1900*time.Millisecond {
				s.Fatalf("asked %+v", asked)
			}
			if acks {
				u.renew()
			}
			s.run(2 * time.Second)
			s.must(u.latest(1), lockkeeper.Ended, lockkeeper.Stolen)
			if st := s.must(v.latest(1), lockkeeper.Held, 0); st.Unconfirmed == acks {
				s.Errorf("unconfirmed %v, and the victim's lease stated the end: %v", st.Unconfirmed, acks)
			}
		})
	}
}

func TestSessionIsTakenOverByAnotherParty(t *testing.T) {
	each(t, 2, func(s *sim) {
		u := s.user(0, "u")
		kept := u.claim(want("kept", 0))
		u.claim(want("dropped", 0))
		heir := &user{sim: s, p: s.parties[1], key: u.key, id: u.id, ttl: u.ttl}
		lease := heir.attach(1)
		if lease.Key.Epoch <= u.key.Epoch || len(lease.Claims) != 1 {
			s.Fatalf("lease %+v", lease)
		}
		if st := s.must(lease.Claims[0], lockkeeper.Held, 0); st.Fence != kept.Fence || st.Change <= kept.Change {
			s.Errorf("taken over with fence %d and change %d, was %d and %d", st.Fence, st.Change, kept.Fence, kept.Change)
		}
		if a := s.await(u.p, u.p.Renew(s.now, u.key)); a.Err == nil {
			s.Error("the former key renews")
		}
		again := want("kept", 0)
		again.ID = 1
		s.must(heir.claim(again), lockkeeper.Held, 0)
		u.key = heir.key
		if lease = u.attach(1, 2); len(lease.Claims) != 2 {
			s.Fatalf("back with the lease %+v", lease)
		}
		s.must(lease.Claims[1], lockkeeper.Ended, lockkeeper.Superseded)
	})
}

func TestLongestHoldEnds(t *testing.T) {
	each(t, 1, func(s *sim) {
		u := s.user(0, "u")
		w := want("a", 0)
		w.MaxHold, w.Grace = time.Second, time.Second
		u.claim(w)
		s.run(1100 * time.Millisecond)
		if asked := u.latest(1).Asked; asked == nil || asked.Reason != lockkeeper.Overdue {
			s.Fatalf("asked %+v", asked)
		}
		s.run(time.Second)
		s.must(u.latest(1), lockkeeper.Ended, lockkeeper.Overdue)
		s.must(u.claim(want("a", 0)), lockkeeper.Held, 0)
	})
}

func TestMinorityOfServersMayFail(t *testing.T) {
	for _, n := range []int{3, 5} {
		s := newSim(t, n, 2, 9)
		u, v := s.user(0, "u"), s.user(1, "v")
		u.claim(want("a", 0))
		for i := range n / 2 {
			s.dead[i] = true
		}
		v.claim(want("a", lockkeeper.Forever))
		for range 5 {
			s.run(3 * time.Second)
			u.renew()
			v.renew()
		}
		u.release(1)
		s.run(2 * time.Second)
		s.must(v.latest(1), lockkeeper.Held, 0)
	}
}

// a server that comes back without the session gets it back, with its claims
func TestServerThatForgotIsRestored(t *testing.T) {
	s := newSim(t, 3, 2, 9)
	u, v := s.user(0, "u"), s.user(1, "v")
	u.claim(want("a", 0))
	s.run(time.Second)
	s.servers[0] = NewServer(Limits{})
	u.renew()
	s.run(time.Second)
	s.dead[1] = true
	s.must(v.claim(want("a", 0)), lockkeeper.Ended, lockkeeper.TimedOut)
	u.renew()
	s.run(2 * time.Second)
	if st := u.latest(1); st.State == lockkeeper.Ended {
		t.Fatalf("lost with two votes: %+v", st)
	}
}
