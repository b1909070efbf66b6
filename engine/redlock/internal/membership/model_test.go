package membership

import (
	"fmt"
	"math/rand/v2"
)

// The model has servers that do in Go what the scripts do, and parties that observe and change them
// through Decide, one step at a time, in any order: a party may apply a plan long after it observed.
// Parties compete for one lock by votes of a majority. Servers lose their data in all ways, a
// minority at a time. Two holders at once, or a fence that does not rise, is a violation.

const modelTTL = 10 // ticks of the model; a tick is a microsecond of the servers' clocks

// bug is a planted bug.
type bug string

const (
	none      bug = ""
	noBarrier bug = "the barrier left out"
	noWait    bug = "a server that lost its data takes part at once"
	noFloor   bug = "its floor is not raised"
	minority  bug = "a minority of the members is enough for the barrier, the floor and the time out"
	oneSource bug = "its floor and the time out come from one server"
	trusting  bug = "a server that was durable before its restart is trusted, whatever it is set to now"
)

// image is what a server keeps.
type image struct {
	gen      Generation
	recorded string
	durable  bool
	marker   string
	out      int64

	holder, until int64 // the vote: of party holder, 0 for none
	vote          int64 // its number
	counter       int64
}

type modelServer struct {
	image
	run   int   // of the process
	syncs bool  // each change is on disk before it is answered
	log   image // the state when it synced last, with which it begins if it is set to sync then
	disk  image // an older state, with which it may begin if it is not
}

func (s *modelServer) runID() string { return fmt.Sprintf("%040d", s.run) }

type modelParty struct {
	vector Vector
	seen   []Record
	plan   Plan
	steps  []Step
	left   int64 // of a PutOut whose ends were read
	floor  int64
	read   bool

	votes    []int64 // by server: the number, 0 none
	lives    []Generation
	promises []int64
	stamped  []bool
	fence    int64
}

type model struct {
	r       *rand.Rand
	bug     bug
	now     int64
	names   []string
	servers []*modelServer
	parties []*modelParty
	eager   int   // the party that acts most often now
	last    int64 // the highest fence granted
	grants  int
	joins   int
	story   []string
	bad     string
}

func newModel(seed uint64, b bug, servers, parties int) *model {
	m := &model{r: rand.New(rand.NewPCG(seed, 1)), bug: b, now: 1000}
	for i := range servers {
		m.names = append(m.names, fmt.Sprintf("s%d:6379", i))
		m.servers = append(m.servers, &modelServer{run: i + 1, image: image{}})
	}
	for range parties {
		m.parties = append(m.parties, m.newParty())
	}
	return m
}

func (m *model) newParty() *modelParty {
	n := len(m.servers)
	return &modelParty{
		votes:    make([]int64, n),
		lives:    make([]Generation, n),
		promises: make([]int64, n),
		stamped:  make([]bool, n),
	}
}

func (m *model) logf(format string, args ...any) {
	m.story = append(m.story, fmt.Sprintf("%5d  ", m.now)+fmt.Sprintf(format, args...))
}

// step does one random thing.
func (m *model) step() {
	p := m.r.IntN(len(m.parties))
	i := m.r.IntN(len(m.servers))
	if m.r.IntN(50) == 0 {
		m.eager = p
	}
	if m.r.IntN(4) > 0 {
		p = m.eager // else votes would be split nearly always
	}
	switch k := m.r.IntN(100); {
	case k < 15:
		m.observe(p)
	case k < 35:
		m.apply(p)
	case k < 65:
		m.request(p, i)
	case k < 85:
		m.stamp(p, i)
	case k < 89:
		m.release(p)
	case k < 95:
		m.now += int64(m.r.IntN(3))
	case k < 96:
		m.servers[i].disk = m.servers[i].image // a snapshot
	case k < 97:
		m.set(m.servers[i], m.r.IntN(4) > 0)
	default:
		m.lose(i)
	}
	m.check()
}

// observe has a party read the records; some servers may seem silent.
func (m *model) observe(p int) { m.observeSome(p, func() bool { return m.r.IntN(8) > 0 }) }

func (m *model) observeAll(p int) { m.observeSome(p, func() bool { return true }) }

// returning reports whether a server that lost its data is out.
func (m *model) returning() bool {
	for _, s := range m.servers {
		if s.out != 0 && s.marker == "" {
			return true
		}
	}
	return false
}

func (m *model) observeSome(p int, answers func() bool) {
	party := m.parties[p]
	for i, s := range m.servers {
		if m.bug == noBarrier && s.out != 0 && s.marker == "" && m.now >= s.out {
			s.marker = party.vector.with(i, s.gen).String()
		}
	}
	party.seen = make([]Record, len(m.servers))
	for i, s := range m.servers {
		if !answers() {
			continue
		}
		v, err := ParseVector(s.marker)
		if err != nil {
			panic(err)
		}
		r := Record{Answered: true, RunID: s.runID(), Now: m.now, Loses: !s.syncs && m.bug != trusting}
		if s.gen != 0 {
			r.Generation, r.Recorded, r.Durable, r.Vector, r.Out = s.gen, s.recorded, s.durable, v, s.out
			r.Servers, r.Index, r.Names = len(m.servers), i, m.names
		}
		party.seen[i] = r
	}
	party.plan = Decide(m.names, party.seen, party.vector)
	if m.bug == minority {
		party.plan = decide(m.names, party.seen, party.vector, len(m.servers)/2)
	}
	party.steps, party.read = party.plan.Steps, false
	for i := range party.plan.Members {
		if party.plan.Members[i] {
			m.raise(p, party.plan.Vector)
			break
		}
	}
}

// raise makes v the vector of a party; promises and votes of lives that it does not state are void.
func (m *model) raise(p int, v Vector) {
	party := m.parties[p]
	if party.vector.Set == v.Set {
		v = v.Merge(party.vector)
	}
	party.vector = v
	for i, g := range v.Generations {
		if party.lives[i] != g {
			party.votes[i], party.promises[i], party.stamped[i] = 0, 0, false
		}
	}
}

// same reports whether a record still is as a party observed it.
func (m *model) same(s *modelServer, r *Record) bool {
	return s.runID() == r.RunID && s.gen == r.Generation && s.marker == r.Vector.String() &&
		(s.gen == 0 || s.durable == r.Durable && s.recorded == r.Recorded)
}

// apply makes the next step of a party's plan.
func (m *model) apply(p int) {
	party := m.parties[p]
	if len(party.steps) == 0 {
		return
	}
	step := party.steps[0]
	s, r := m.servers[step.Server], &party.seen[step.Server]
	if step.Kind == PutOut && !party.read {
		party.read = true // the ends now, the record later
		m.readEnds(party, step)
		return
	}
	party.steps = party.steps[1:]
	if step.Kind == Merge && m.bug == noBarrier && m.returning() {
		return // it comes after the return
	}
	if step.Kind == Merge {
		m.merge(s, r, party.plan.Vector)
		return
	}
	if !m.same(s, r) {
		return
	}
	v := party.plan.Vector
	switch step.Kind {
	case Tag:
		s.image = image{gen: NewGeneration(step.Count, m.r.Uint32()), recorded: s.runID(), durable: !r.Loses}
		m.logf("party %d tags server %d: %d", p, step.Server, s.gen)
		if m.bug == noBarrier && step.Count > 1 {
			all := v.with(step.Server, s.gen)
			for j := range m.servers {
				if j != step.Server {
					party.left = max(party.left, m.servers[j].until-m.now)
					party.floor = max(party.floor, m.servers[j].counter)
				}
			}
			s.out, s.counter = m.now+max(party.left, 0)+1, party.floor
			party.plan.Vector = all
		}
	case Relabel:
		if s.recorded == s.runID() || s.durable {
			s.recorded, s.durable = s.runID(), !r.Loses
		}
	case Commit:
		if s.recorded == s.runID() && s.marker == "" {
			s.marker = v.String()
			m.logf("party %d commits server %d: %s", p, step.Server, s.marker)
		}
	case PutOut:
		if s.recorded == s.runID() && s.marker == "" && s.out == 0 && party.left >= 0 {
			s.out = m.now + party.left + 1
			s.counter = max(s.counter, party.floor)
			m.logf("server %d stays out until %d, with the floor %d", step.Server, s.out, s.counter)
		}
	case Join:
		if s.recorded == s.runID() && s.marker == "" && s.out != 0 && m.now >= s.out {
			s.marker = v.String()
			m.joins++
			m.logf("party %d lets server %d in: %s", p, step.Server, s.marker)
		}
	}
}

func (m *model) readEnds(party *modelParty, step Step) {
	party.left, party.floor = 0, 0
	from := step.From
	if m.bug == oneSource {
		from = from[len(from)-1:]
	}
	for _, j := range from {
		s := m.servers[j]
		if s.marker != party.plan.Vector.String() || s.runID() != party.seen[j].RunID {
			party.left = -1 // no longer as observed
			return
		}
		party.left = max(party.left, s.until-m.now)
		party.floor = max(party.floor, s.counter)
	}
	if m.bug == noWait {
		party.left = 0
	}
	if m.bug == noFloor {
		party.floor = 0
	}
}

func (m *model) merge(s *modelServer, r *Record, v Vector) {
	stored, err := ParseVector(s.marker)
	if err != nil || stored.Set != v.Set || s.runID() != r.RunID || s.recorded != s.runID() {
		return
	}
	s.marker = stored.Merge(v).String()
}

// request asks a server for its vote, or for a longer promise.
func (m *model) request(p, i int) {
	party, s := m.parties[p], m.servers[i]
	id := int64(p + 1)
	if party.vector.Set == "" || s.recorded != s.runID() || s.marker == "" {
		return
	}
	if s.marker != party.vector.String() {
		if v, _ := ParseVector(s.marker); v.Set == party.vector.Set {
			m.raise(p, v)
			if m.bug != noBarrier {
				s.marker = v.Merge(party.vector).String()
			}
		}
		return
	}
	if s.holder != 0 && s.holder != id && s.until > m.now {
		return // taken; the party asks again
	}
	if s.holder != id || s.until <= m.now || party.votes[i] != s.vote { // of a claim that was released
		s.counter++
		s.holder, s.vote = id, s.counter
		party.votes[i], party.stamped[i] = s.vote, false
	}
	s.until = m.now + modelTTL
	party.promises[i], party.lives[i] = s.until, party.vector.Generations[i]
}

// stamp raises the counter of a vote to the highest of the party's votes.
func (m *model) stamp(p, i int) {
	party, s := m.parties[p], m.servers[i]
	if party.fence == 0 {
		if m.live(party) < len(m.servers)/2+1 {
			return
		}
		for j, v := range party.votes {
			if party.promises[j] > m.now {
				party.fence = max(party.fence, v)
			}
		}
	}
	if s.marker != party.vector.String() || s.recorded != s.runID() || s.holder != int64(p+1) || s.vote != party.votes[i] {
		return
	}
	if s.counter < party.fence || s.counter == party.fence && s.vote == party.fence {
		s.counter = party.fence
		party.stamped[i] = true
	}
	if m.holds(p) {
		m.granted(p)
	}
}

// live counts the servers whose promise a party may rely on.
func (m *model) live(party *modelParty) int {
	n := 0
	for i := range party.promises {
		if party.promises[i] > m.now && party.votes[i] != 0 {
			n++
		}
	}
	return n
}

// holds reports whether a party believes that it holds the lock.
func (m *model) holds(p int) bool {
	party := m.parties[p]
	n := 0
	for i := range party.promises {
		if party.promises[i] > m.now && party.votes[i] != 0 && party.stamped[i] {
			n++
		}
	}
	return n > len(m.servers)/2
}

func (m *model) granted(p int) {
	f := m.parties[p].fence
	if f < m.last {
		m.bad = fmt.Sprintf("party %d is granted fence %d after %d", p, f, m.last)
	}
	if f > m.last {
		m.grants++
		m.logf("party %d holds with fence %d", p, f)
	}
	m.last = f
}

// release gives up a hold or an attempt; the records end by their time.
func (m *model) release(p int) {
	party := m.parties[p]
	fresh := m.newParty()
	fresh.vector, fresh.seen, fresh.plan, fresh.steps = party.vector, party.seen, party.plan, party.steps
	fresh.left, fresh.floor, fresh.read = party.left, party.floor, party.read
	m.parties[p] = fresh
	for _, s := range m.servers {
		if s.holder == int64(p+1) && s.marker == party.vector.String() && m.r.IntN(2) == 0 {
			s.holder = 0
		}
	}
}

// lose has server i lose its data in some way, if the others are members that lost nothing.
func (m *model) lose(i int) {
	s := m.servers[i]
	reference := Vector{}
	for j, o := range m.servers {
		v, _ := ParseVector(o.marker)
		if j != i && (o.marker == "" || o.recorded != o.runID() || o.durable && !o.syncs) {
			return
		}
		if j != i && reference.Set != "" {
			v = v.Merge(reference)
		}
		if j != i {
			reference = v
		}
	}
	for j, o := range m.servers {
		if j != i && o.gen != reference.Generations[j] {
			return
		}
	}
	m.loseSome(s, i)
}

// Operators can do what no party can see: these are excluded. A server stops syncing, and
//
//   - it is set to sync again before a party has looked; see set,
//   - it is restarted, set to sync, before the other servers know of its new life; see loseSome.

// set has an operator change the settings of a server.
func (m *model) set(s *modelServer, syncs bool) {
	if syncs && !s.syncs && s.durable {
		return
	}
	if s.syncs {
		s.log = s.image
	}
	s.syncs = syncs
}

// loseSome deletes all data of a server, or restarts it, perhaps with other settings.
func (m *model) loseSome(s *modelServer, i int) {
	if m.r.IntN(4) == 0 {
		s.image = image{}
		m.logf("server %d is flushed", i)
		return
	}
	syncs := m.r.IntN(3) > 0
	if syncs && !s.syncs && s.log.durable && m.known(i, s.log.gen) {
		return
	}
	if s.syncs {
		s.log = s.image
	}
	s.syncs = syncs
	s.run += 1000
	switch {
	case s.syncs:
		s.image = s.log
	case m.r.IntN(3) == 0:
		s.image = image{}
	default:
		s.image = s.disk
	}
	m.logf("server %d restarts, syncs %t: %+v", i, s.syncs, s.image)
}

// known reports whether a server states that generation for server i.
func (m *model) known(i int, g Generation) bool {
	for _, s := range m.servers {
		if v, _ := ParseVector(s.marker); v.Set != "" && v.Generations[i] == g {
			return true
		}
	}
	return false
}

// check looks for two holders.
func (m *model) check() {
	holder := -1
	for p := range m.parties {
		if !m.holds(p) {
			continue
		}
		if holder >= 0 {
			m.bad = fmt.Sprintf("parties %d and %d both hold", holder, p)
		}
		holder = p
	}
}
