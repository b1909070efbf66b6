// Package memory has redlock servers in the memory of this process, for tests: what a set of Redis
// servers does, and their faults. It takes all time from package time, so that it works in a bubble
// of testing/synctest.
package memory

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/link"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/quorum"
)

// Faults of the links to one server. The zero value has none.
type Faults struct {
	Lose      int           // percent of pipelines that are lost, half of them after they were executed
	LoseHints int           // percent of messages that are lost
	Double    int           // percent of pipelines and messages that arrive a second time, later
	Delay     time.Duration // longest delay of each way, at random
}

// Set is a set of servers that lives as long as the test. It is safe for concurrent use.
type Set struct{ servers []*Server }

// New returns a set of n servers, which are up. seed determines the faults, as far as the order of
// goroutines allows.
func New(n int, seed uint64) *Set {
	set := &Set{}
	for i := range n {
		set.servers = append(set.servers, &Server{
			name:   fmt.Sprintf("memory %d", i),
			random: rand.New(rand.NewPCG(seed, uint64(i))),
			state:  quorum.NewServer(quorum.Limits{}),
		})
	}
	return set
}

// Server returns server i.
func (set *Set) Server(i int) *Server { return set.servers[i] }

// Links returns a new link to each server, for one engine.
func (set *Set) Links() []link.Link {
	var all []link.Link
	for _, s := range set.servers {
		all = append(all, &Link{server: s, wakeup: make(chan struct{}, 1)})
	}
	return all
}

// SpreadClocks sets the clocks of the servers apart, each by 1000 s. It must be called before the
// servers are used. Nothing but the order of waiters may depend on it.
func (set *Set) SpreadClocks() {
	for i, s := range set.servers {
		s.offset = quorum.Micros(i) * 1_000_000_007
	}
}

// SetFaults sets the faults of all servers.
func (set *Set) SetFaults(f Faults) {
	for _, s := range set.servers {
		s.mu.Lock()
		s.faults = f
		s.mu.Unlock()
	}
}

var (
	errStopped = errors.New("the server is stopped")
	errDropped = errors.New("the connection broke")
)

// Server is one server.
type Server struct {
	name   string
	offset quorum.Micros

	mu      sync.Mutex // guards all below
	state   *quorum.Server
	faults  Faults
	random  *rand.Rand
	links   []*Link // those whose Watch runs
	stopped bool
	life    int // rises whenever it loses its data
}

// now returns the server's clock. The caller holds mu.
func (s *Server) now() quorum.Micros { return s.offset + quorum.Micros(time.Now().UnixMicro()) }

// Stop makes the server unreachable. It keeps its data.
func (s *Server) Stop() {
	s.mu.Lock()
	s.stopped = true
	links := slices.Clone(s.links)
	s.mu.Unlock()
	for _, l := range links {
		l.fail(errStopped)
	}
}

// Start makes a stopped server reachable again, with the data that it had.
func (s *Server) Start() {
	s.mu.Lock()
	s.stopped = false
	links := slices.Clone(s.links)
	s.mu.Unlock()
	for _, l := range links {
		l.wake()
	}
}

// lose deletes the data of the server, and tells the parties. It is stopped until rejoin.
func (s *Server) lose() {
	s.mu.Lock()
	s.stopped = true
	s.life++
	s.state = quorum.NewServer(quorum.Limits{})
	links := slices.Clone(s.links)
	s.mu.Unlock()
	for _, l := range links {
		l.lose()
	}
}

// Empty deletes the data of server i of several. The server takes part again when the longest lease
// that the others promise has passed, with the highest of their floors (condition 2). Then Empty
// closes the channel that it returns.
func (set *Set) Empty(i int) <-chan struct{} {
	back := make(chan struct{})
	s := set.servers[i]
	s.lose()
	var longest quorum.Micros
	for _, other := range set.servers {
		if other != s {
			other.mu.Lock()
			promised, _ := other.state.Promises(other.now())
			other.mu.Unlock()
			longest = max(longest, promised)
		}
	}
	time.AfterFunc(time.Duration(longest+1)*time.Microsecond, func() {
		set.rejoin(s)
		close(back)
	})
	return back
}

func (set *Set) rejoin(s *Server) {
	var floor uint64
	for _, other := range set.servers {
		if other != s {
			other.mu.Lock()
			_, its := other.state.Promises(other.now())
			other.mu.Unlock()
			floor = max(floor, its)
		}
	}
	s.mu.Lock()
	s.state.RaiseFloor(floor)
	s.mu.Unlock()
	s.Start()
}

// percent reports, at random, true in n of 100 cases. The caller holds mu.
func (s *Server) percent(n int) bool { return n > 0 && s.random.IntN(100) < n }

// oneWay is the shortest time of one way. Without it nothing would take time in a bubble, so tickets
// could not say what came first.
const oneWay = 50 * time.Microsecond

// delay returns the time of one way. The caller holds mu.
func (s *Server) delay() time.Duration {
	if s.faults.Delay == 0 {
		return oneWay
	}
	return oneWay + time.Duration(s.random.Int64N(int64(s.faults.Delay)))
}

// execute executes a pipeline and sends the messages. It returns nil if the server is stopped or
// lost its data since life.
func (s *Server) execute(life int, requests []quorum.Request) []quorum.Reply {
	s.mu.Lock()
	if s.stopped || s.life != life {
		s.mu.Unlock()
		return nil
	}
	replies := make([]quorum.Reply, 0, len(requests))
	var messages []quorum.Message
	for i := range requests {
		reply, sent := s.state.Apply(s.now(), requests[i])
		replies = append(replies, reply)
		messages = append(messages, sent...)
	}
	s.mu.Unlock()
	for _, m := range messages {
		s.send(m)
	}
	return replies
}

// send delivers a message to the link that watches its channel.
func (s *Server) send(m quorum.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		if l.channel != m.To || s.percent(s.faults.LoseHints) {
			continue
		}
		l.receive(m, s.delay())
		if s.percent(s.faults.Double) {
			l.receive(m, s.delay()+time.Duration(s.random.Int64N(int64(time.Second))))
		}
	}
}
