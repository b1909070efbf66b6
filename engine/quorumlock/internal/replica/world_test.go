package replica

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
)

// A world runs machines and clients in virtual time, in one goroutine. All random choices come from
// its seed, also those of raft, so a seed replays.
type world struct {
	*testing.T
	random   *rand.Rand
	profile  profile
	now      time.Duration // true time, which nobody in the world can read
	events   eventQueue
	order    int
	machines []*machine
	byID     map[uint64]*machine // by the latest id of each machine, and by its former ones
	lastID   uint64
	network  network
	clients  []*client
	recorder *history.Recorder
	judge    judge
	endsSoon bool           // with the first broken promise
	seen     map[string]int // what happened, and how often
	guests   *guests        // nil: there is no policy
	trace    []string       // the latest events, for the report of a failure
}

// A profile says what a world is like.
type profile struct {
	machines, voters, clients int
	faults                    time.Duration // how long faults happen
	only                      []string      // the kinds of faults, by name; nil: all
	quiet                     time.Duration // how long the world is whole after that
	learners                  bool          // all machines that do not vote are learners, and never vote
	badClocks                 bool          // clocks also jump ahead and run fast: then only the table must be right
	steals                    bool          // claims also take holds away after a time
	policies                  bool          // a policy changes all the time
	lateCopies                bool          // each call arrives twice, once of it late
	bug                       bug
	program                   Rules         // of all machines; earlierRules: they get the later ones during the faults
	ttl                       time.Duration // of sessions; 0: 2 to 6 seconds

	backing func(t *testing.T, s State) Backing // makes a disk with that state; nil: none
}

const (
	tick        = 100 * time.Millisecond
	callTimeout = time.Second
)

func newWorld(t *testing.T, p profile, seed uint64) *world {
	cryptotest.SetGlobalRandom(t, seed) // raft draws its election timeouts from it
	w := &world{
		T: t, random: rand.New(rand.NewPCG(seed, 0)), profile: p, now: time.Hour,
		byID: make(map[uint64]*machine), seen: make(map[string]int),
	}
	w.network = network{world: w, cut: make(map[link]bool)}
	w.judge = newJudge(w)
	w.recorder = history.NewRecorder(func() time.Duration { return w.now }, nil)
	var founders []uint64
	for i := range p.machines {
		m := newMachine(w, i)
		if i < p.voters {
			founders = append(founders, m.id)
		}
	}
	for i, m := range w.machines {
		if i < p.voters {
			m.disk.reset(foundNodes(w, founders))
		}
		m.start()
	}
	for i := range p.clients {
		w.clients = append(w.clients, newClient(w, i))
	}
	w.addPutters(2)
	if p.policies {
		w.host()
	}
	w.after(time.Second, w.operate)
	return w
}

type simEvent struct {
	at    time.Duration
	order int
	do    func()
}

func (e *simEvent) before(other *simEvent) bool {
	return e.at < other.at || e.at == other.at && e.order < other.order
}

// An eventQueue is a binary heap, the first event at its root. It has no interfaces as container/heap
// has: a conversion to one allocates for every event.
type eventQueue []simEvent

func (q *eventQueue) push(e simEvent) {
	h := append(*q, simEvent{})
	*q = h
	hole := len(h) - 1
	for hole > 0 && e.before(&h[(hole-1)/2]) {
		h[hole] = h[(hole-1)/2]
		hole = (hole - 1) / 2
	}
	h[hole] = e
}

func (q *eventQueue) pop() simEvent {
	h := *q
	first, last := h[0], h[len(h)-1]
	h[len(h)-1] = simEvent{}
	h = h[:len(h)-1]
	*q = h
	hole := 0
	for child := 1; child < len(h); child = 2*hole + 1 {
		if child+1 < len(h) && h[child+1].before(&h[child]) {
			child++
		}
		if last.before(&h[child]) {
			break
		}
		h[hole] = h[child]
		hole = child
	}
	if len(h) > 0 {
		h[hole] = last
	}
	return first
}

// after lets do happen after d.
func (w *world) after(d time.Duration, do func()) {
	w.order++
	w.events.push(simEvent{w.now + max(d, 0), w.order, do})
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	w.Helper()
	end := w.now + d
	for len(w.events) > 0 && w.events[0].at <= end && !(w.endsSoon && len(w.judge.faults) > 0) {
		e := w.events.pop()
		w.now = e.at
		e.do()
	}
	w.now = end
}

// between returns a random duration from least to most.
func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.random.Int64N(int64(most-least)+1))
}

func (w *world) chance(p float64) bool { return w.random.Float64() < p }

// saw counts that something happened.
func (w *world) saw(what string) { w.seen[what]++ }

func (w *world) tracef(format string, args ...any) {
	if len(w.trace) >= 2000 {
		w.trace = w.trace[1000:]
	}
	w.trace = append(w.trace, fmt.Sprintf("%12s ", w.now-time.Hour)+fmt.Sprintf(format, args...))
}

// faultf reports a broken promise.
func (w *world) faultf(format string, args ...any) {
	w.Helper()
	w.judge.faults = append(w.judge.faults, fmt.Sprintf("%s: ", w.now-time.Hour)+fmt.Sprintf(format, args...))
}

// A machine is a computer with a disk, a boot clock and one process with a Replica.
type machine struct {
	*world
	name     string
	number   int
	id       uint64
	clock    clock
	disk     disk
	replica  *Replica         // nil while the process is down
	life     int              // rises with every start and end of the process
	due      []func(*Replica) // inputs that the process has, and has not brought to the replica
	paused   time.Duration
	calls    map[CallID]func(Answer)
	reads    map[CallID]func(error)
	within   int    // commands of the entry at hand that were applied
	index    uint64 // of that entry
	wakeAt   time.Duration
	returned uint64 // incarnations so far
	program  Rules  // the versions of the rules that its program has
	off      bool   // it has the rank Off
	member   bool   // its id is in the configuration, or was
}

func newMachine(w *world, number int) *machine {
	m := &machine{world: w, number: number, program: w.profile.program, name: fmt.Sprintf("machine%d", number)}
	m.clock = newClock(w)
	m.disk = disk{machine: m, slowest: usualSync, lies: w.profile.bug == lyingDisk}
	w.machines = append(w.machines, m)
	m.newID()
	return m
}

// newID gives the machine an id that was never used, and an empty disk.
func (m *machine) newID() {
	m.lastID++
	m.id = m.lastID
	m.byID[m.id] = m
	m.disk.reset(State{})
	m.member = false
}

func (m *machine) config() Config {
	m.returned++
	return Config{
		ID:             m.id,
		Incarnation:    uint64(m.number+1)<<32 + m.returned,
		Guarantees:     lockkeeper.Guarantees{Name: "quorum", Features: lockkeeper.TableFeatures},
		Rules:          m.program,
		HeartbeatTicks: 1,
		ElectionTicks:  10,
		CallTimeout:    callTimeout,
		RecordEvery:    time.Second,
		SnapshotEvery:  50,
		KeepEntries:    10,
		MaxQueued:      1000,
		MaxEntry:       4096,
		MaxUnwritten:   1 << 20,
		Decider: func(policy []byte) Decider {
			return &toyRights{policy: string(policy), world: m.world, open: make(map[string]int)}
		},
		Applied: func(a Applied) { m.judge.applied(m, a.Index, a.Table, a.Command) },
		Changed: func(_ uint64, s Setting) { m.judge.changed(m, s) },
	}
}

// start starts the process with what the disk has.
func (m *machine) start() {
	m.life++
	if m.profile.bug == learnersVote {
		m.countLearners()
	}
	m.calls, m.reads = make(map[CallID]func(Answer)), make(map[CallID]func(error))
	m.index, m.within, m.wakeAt, m.due = 0, 0, 0, nil
	r, err := New(m.config(), m.disk.read(), m.clock.read())
	if err != nil {
		m.faultf("%s does not start: %v", m.name, err)
		return
	}
	m.replica = r
	m.tracef("%s starts as node %d at entry %d", m.name, m.id, r.Status().Applied)
	m.collect()
	m.tickAfter(m.between(0, tick))
}

func (m *machine) tickAfter(d time.Duration) {
	m.input(d, func(r *Replica) {
		r.Tick(m.clock.read())
		m.tickAfter(tick)
	})
}

// input brings an input to the process after d, or when it goes on after a pause; never, if the
// process ends before.
func (m *machine) input(d time.Duration, do func(r *Replica)) {
	life := m.life
	m.after(d, func() {
		switch rest := m.paused - m.now; {
		case m.life != life || m.replica == nil:
		case rest > 0:
			m.input(rest, do)
		default:
			m.bring(do)
		}
	})
}

// bring brings an input to the replica, sometimes a moment later and together with all that come until
// then.
func (m *machine) bring(do func(r *Replica)) {
	if m.due = append(m.due, do); len(m.due) > 1 {
		return
	}
	wait := time.Duration(0)
	if m.chance(0.2) {
		wait = m.between(0, usualDelay)
	}
	life := m.life
	m.after(wait, func() {
		if m.life != life || m.replica == nil {
			return
		}
		due := m.due
		m.due = nil
		if len(due) > 1 {
			m.saw("inputs together")
		}
		m.replica.Together(func() {
			for _, do := range due {
				do(m.replica)
			}
		})
		m.collect()
	})
}

// collect carries out the output of the replica.
func (m *machine) collect() {
	r := m.replica
	out := r.Output()
	for _, w := range out.Writes {
		m.disk.write(w)
	}
	for _, send := range out.Sends {
		m.network.send(m, send)
	}
	for _, a := range out.Answers {
		m.deliver(a)
	}
	if r.failed != nil {
		m.judge.stopped(m, r.failed)
	} else if r.lead.ready {
		m.judge.leads(m, r.lead.term)
	}
	if at, ok := r.Next(); ok && at != m.wakeAt {
		m.wakeAt = at
		m.input(m.clock.until(at), func(r *Replica) { r.Wake(m.clock.read()) })
	}
}

// deliver passes an answer on to the client.
func (m *machine) deliver(a Answer) {
	if done := m.reads[a.Call]; done != nil {
		delete(m.reads, a.Call)
		done(a.Err)
		return
	}
	answered := m.calls[a.Call]
	if answered == nil {
		m.faultf("%s answers call %d twice, or never had it: %v", m.name, a.Call, a)
		return
	}
	delete(m.calls, a.Call)
	answered(a)
}

// crash ends the process. A machine that loses power also loses its boot clock.
func (m *machine) crash(power bool) {
	if m.replica == nil {
		return
	}
	m.tracef("%s crashes, power lost: %v", m.name, power)
	m.saw("crash")
	m.life++
	m.replica, m.paused = nil, 0
	m.disk.crash()
	if power {
		m.clock.restart()
	}
}

// A clock is the boot clock of a machine: it has an own beginning and rate.
type clock struct {
	*world
	begin time.Duration // true time of the latest change
	value time.Duration // then
	rate  float64
	own   float64 // the rate without faults
}

func newClock(w *world) clock {
	c := clock{world: w, begin: w.now, value: w.between(0, 100*24*time.Hour)}
	c.own = 1 + (w.random.Float64()-0.5)*0.009 // rates of two machines differ by less than 1 %
	c.rate = c.own
	return c
}

func (c *clock) read() time.Duration {
	return c.value + time.Duration(float64(c.now-c.begin)*c.rate)
}

// until returns the true time that passes before the clock reads at.
func (c *clock) until(at time.Duration) time.Duration {
	if c.rate == 0 {
		return time.Minute
	}
	return time.Duration(float64(at-c.read())/c.rate) + 1
}

// set changes value and rate.
func (c *clock) set(value time.Duration, rate float64) { c.begin, c.value, c.rate = c.now, value, rate }

func (c *clock) restart() { c.set(0, c.rate) }
