package redlock

import (
	"bufio"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/badnet"
	"github.com/lockkeeper/lockkeeper/internal/stress"
	"github.com/lockkeeper/lockkeeper/internal/testdb"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

const (
	faultTTL  = 2 * lockkeeper.MinTTL
	faultBusy = 60 * time.Second // the longest time without a grant although a majority can be reached
)

// Servers are killed, paused, restarted empty or with old data, cut off and slowed while clients
// lock. Package history judges what the clients observed, after every round.
//
// A round hurts a minority at most, and then locks must be granted during the faults; or it pauses
// or cuts off all servers, but takes nobody's data. A server that lost its data must be a member
// again before the next round, and locks must be granted that need its votes.
func TestServersFailUnderLoad(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d servers", n), func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, n)
			began := time.Now()
			for round := range testmode.Pick(3, 60) {
				if round%8 == 5 {
					f.hurtAll()
				} else {
					f.hurtMinority()
				}
				f.judge(round%8 == 7)
				f.Logf("round %d is over: %s, %v", round, time.Since(began).Round(time.Millisecond), f.load)
				if t.Failed() {
					break
				}
			}
			f.load.Pause()
			if err := f.load.Close(); err != nil {
				t.Error(err)
			}
			f.log()
		})
	}
}

// faulty is a set of servers with a proxy before each, and clients that lock through the proxies.
type faulty struct {
	*testing.T
	random  *rand.Rand
	servers []*faultyServer
	load    *stress.Load
	engines []*Engine      // of the clients, in their order
	counts  map[string]int // of faults
	longest time.Duration  // the longest time from the end of all faults until the next grant
}

type faultyServer struct {
	*testdb.Server
	proxy      *badnet.Proxy
	durable    bool   // it comes back with everything that it answered
	generation string // as a member
	fault      string // that lasts; "" for none
}

func newFaulty(t *testing.T, n int) *faulty {
	seed := testmode.Seed(t)
	f := &faulty{T: t, random: rand.New(rand.NewPCG(seed, uint64(n))), counts: make(map[string]int)}
	for i := range n {
		s := &faultyServer{durable: i%2 == 1}
		if s.durable {
			s.Server = testdb.Redis(t, testdb.Durable)
		} else {
			s.Server = testdb.Redis(t)
		}
		var err error
		if s.proxy, err = badnet.NewFrameless(s.Addr(), seed+uint64(i)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.proxy.Close)
		f.servers = append(f.servers, s)
	}
	e := f.open()
	rules := history.RulesOf(e.Guarantees())
	// A server that was away does not know claims that began to wait meanwhile, until they ask again.
	rules.FIFO, rules.Priority = false, false
	rules.SplitVotes = true
	f.load = stress.New(seed, rules)
	f.load.Long = faultTTL
	f.add(e)
	for range 3 {
		f.add(f.open())
	}
	f.granted(20)
	for _, s := range f.servers {
		s.generation = f.field(s, "gen")
	}
	return f
}

// add adds a client of the load.
func (f *faulty) add(e lockkeeper.Engine) {
	f.engines = append(f.engines, e.(*Engine))
	f.load.Add("client", e, 2, lockkeeper.SessionTTL(faultTTL))
}

func (f *faulty) open() lockkeeper.Engine {
	f.Helper()
	var addrs []string
	for _, s := range f.servers {
		addrs = append(addrs, s.proxy.Addr())
	}
	e, err := lockkeeper.Open(f.Context(), "redis://"+strings.Join(addrs, ","))
	if err != nil {
		f.Fatal(err)
	}
	return e
}

// granted returns after that many further grants, and how long they took.
func (f *faulty) granted(more int64) time.Duration {
	f.Helper()
	began := time.Now()
	late := time.After(faultBusy)
	for goal := f.load.Granted.Load() + more; f.load.Granted.Load() < goal; {
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			f.Fatalf("not %d more grants within %s: %v; faults so far: %v\n%s", more, faultBusy, f.load, f.counts, f.state())
		}
	}
	return time.Since(began)
}

// sleep lets the faults last for up to d.
func (f *faulty) sleep(d time.Duration) { <-time.After(time.Duration(f.random.Int64N(int64(d)))) }

func (f *faulty) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// count counts a fault, and logs it.
func (f *faulty) count(what string) { f.counts[what]++ }

// A fault of one server. end ends it; lost reports that the server lost data.
type fault struct {
	name  string
	begin func(*faultyServer) (end func(), lost bool)
}

// hurtMinority begins a fault at each server of a minority, and ends them after a while.
func (f *faulty) hurtMinority() {
	n := len(f.servers)
	var ends []func()
	var lost []int
	for _, i := range f.random.Perm(n)[:1+f.random.IntN(n/2)] {
		s := f.servers[i]
		kinds := f.faults(s)
		kind := kinds[f.random.IntN(len(kinds))]
		f.count(kind.name)
		s.fault = kind.name
		end, isLost := kind.begin(s)
		ends = append(ends, func() {
			end()
			s.fault = ""
		})
		if isLost {
			lost = append(lost, i)
		}
	}
	during := f.granted(1)
	f.sleep(faultTTL)
	for _, end := range ends {
		end()
	}
	f.Logf("the first grant after the faults began: %s; five after they ended: %s", during, f.healed())
	for _, i := range lost {
		f.checkMember(i)
	}
}

// healed waits until locks are granted again, and keeps how long that took.
func (f *faulty) healed() time.Duration {
	took := f.granted(5)
	f.longest = max(f.longest, took)
	return took
}

// checkMember waits until the i-th server is a member of the set under a new generation, and pauses
// others, so that it is needed for a majority.
func (f *faulty) checkMember(needed int) {
	n, s := len(f.servers), f.servers[needed]
	for late := time.After(faultBusy); ; {
		if g := f.field(s, "gen"); g != "" && g != s.generation && f.field(s, "marker") != "" {
			s.generation = g
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-late:
			f.Fatalf("server %d is no member within %s after it lost its data; faults so far: %v\n%s", needed, faultBusy,
				f.counts, f.state())
		}
	}
	var paused []*faultyServer
	for _, i := range f.random.Perm(n) {
		if i != needed && len(paused) < n/2 {
			paused = append(paused, f.servers[i])
		}
	}
	for _, s := range paused {
		s.fault = "paused beside a server that came back"
		f.count(s.fault)
		f.must(s.Freeze())
	}
	needing := f.granted(5)
	for _, s := range paused {
		f.must(s.Thaw())
		s.fault = ""
	}
	f.Logf("five grants that need the server: %s; then five more: %s", needing, f.healed())
}

// hurtAll pauses all servers, or cuts them all off, in some rounds for longer than any lease.
func (f *faulty) hurtAll() {
	if f.random.IntN(2) == 0 {
		for _, s := range f.servers {
			s.fault = "all paused"
			f.count(s.fault)
			f.must(s.Freeze())
		}
		<-time.After(faultTTL / 2)
		f.sleep(2 * faultTTL)
		for _, s := range f.servers {
			f.must(s.Thaw())
		}
	} else {
		for _, s := range f.servers {
			s.fault = "all cut off"
			f.count(s.fault)
			s.proxy.Set(f.cutOff())
		}
		<-time.After(faultTTL / 2)
		f.sleep(2 * faultTTL)
		for _, s := range f.servers {
			s.proxy.Heal()
		}
	}
	for _, s := range f.servers {
		s.fault = ""
	}
	f.healed()
}

// cutOff returns a profile that loses everything, in one direction or both.
func (f *faulty) cutOff() (m badnet.Profile) {
	which := f.random.IntN(3)
	m.Up.Discard, m.Down.Discard = which != 0, which != 1
	return m
}

// faults are the faults that may begin at a server.
func (f *faulty) faults(s *faultyServer) []fault {
	all := []fault{
		{"paused", func(s *faultyServer) (func(), bool) {
			f.must(s.Freeze())
			return func() { f.must(s.Thaw()) }, false
		}},
		{"cut off", func(s *faultyServer) (func(), bool) {
			s.proxy.Set(f.cutOff())
			return s.proxy.Heal, false
		}},
		{"stalled", func(s *faultyServer) (func(), bool) {
			s.proxy.Set(badnet.Profile{Down: badnet.Direction{Stall: true}})
			return s.proxy.Heal, false
		}},
		{"slowed", func(s *faultyServer) (func(), bool) {
			d := badnet.Direction{Delay: time.Duration(1+f.random.IntN(300)) * time.Millisecond}
			s.proxy.Set(badnet.Profile{Up: d, Down: d})
			return s.proxy.Heal, false
		}},
		{"connections cut", func(s *faultyServer) (func(), bool) {
			s.proxy.Refuse(true)
			s.proxy.Cut(f.random.IntN(2) == 0)
			return s.proxy.Heal, false
		}},
		{"restarted empty", func(s *faultyServer) (func(), bool) {
			f.must(s.Kill())
			f.must(s.Wipe())
			return func() { f.must(s.Start()) }, true
		}},
	}
	killed := fault{"killed", func(s *faultyServer) (func(), bool) {
		f.must(s.Kill())
		return func() { f.must(s.Start()) }, false
	}}
	old := fault{"restarted with old data", func(s *faultyServer) (func(), bool) {
		f.save(s)
		f.granted(20)
		f.must(s.Kill())
		return func() { f.must(s.Start()) }, true
	}}
	if s.durable {
		return append(all, killed, killed)
	}
	return append(all, old, old)
}

// save makes a server write its present data into the file that it reads at its next start.
func (f *faulty) save(s *faultyServer) {
	f.Helper()
	if answer := f.ask(s, "SAVE"); answer != "+OK" {
		f.Fatalf("SAVE: %s", answer)
	}
}

// field returns a field of a server's record of the set; "" if there is none.
func (f *faulty) field(s *faultyServer, name string) string {
	answer := f.ask(s, "HGET lockkeeper:set "+name)
	return strings.TrimPrefix(answer, "$-1")
}

// ask sends a command to a server, not through its proxy, and returns the last line of the answer.
func (f *faulty) ask(s *faultyServer, command string) string {
	f.Helper()
	line, err := s.ask(command, faultBusy)
	f.must(err)
	return line
}

func (s *faultyServer) ask(command string, within time.Duration) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), within)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		return "", err
	}
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err == nil && strings.HasPrefix(line, "$") && line != "$-1\r\n" {
		line, err = in.ReadString('\n')
	}
	return strings.TrimSpace(line), err
}

// judge judges the history so far.
func (f *faulty) judge(free bool) {
	f.load.Pause()
	for _, wrong := range f.load.Faults() {
		f.Errorf("%s\nafter the faults %v", wrong, f.counts)
	}
	if free && !f.Failed() {
		if err := stress.CheckFree(f.open(), faultBusy); err != nil {
			f.Errorf("%v\n%s", err, f.state())
		}
	}
	f.load.Resume()
}

func (f *faulty) log() {
	total := 0
	for _, what := range slices.Sorted(maps.Keys(f.counts)) {
		total += f.counts[what]
		f.Logf("%4d %s", f.counts[what], what)
	}
	f.Logf("%d faults; %v; at most %s from the end of the faults until five grants", total, f.load,
		f.longest.Round(time.Millisecond))
}
