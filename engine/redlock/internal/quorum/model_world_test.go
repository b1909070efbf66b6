package quorum

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// The model runs the Parties and Servers of this package through schedules. A world has members
// (servers), processes (a Party and the client that uses it), and envelopes on their way:
//
//	process ── request ──> member        Each process has a connection to each member. Requests and
//	process <── reply ──── member        replies of one connection arrive in order. When it breaks,
//	process <── message ── member        its requests may still be executed later, its replies are lost.
//
// Time is the time of an observer, in microseconds. Each member and process has a clock of its own.
// The driver of the world chooses the next step: see move.
type world struct {
	scope     scope
	now       Micros
	members   []*member
	processes []*process
	wire      []*envelope
	judge     judge
	bug       bug
	steps     int
	story     []string // of the steps, if told
	told      bool
}

// A scope is what the model explores: how many of everything, and which faults.
type scope struct {
	servers   int
	processes int
	paths     []string
	ttl       time.Duration
	steals    bool // claims have priorities and steal, with waits down to a tenth of the TTL
	factor1   bool // a steal waits for the whole TTL
	many      bool // claims of two paths
	bounded   bool // tries, and bounded waits
	ppm       int  // clocks differ from each other by up to this many millionths
	broken    bool // clocks differ by more than the drift bound: only P4 and answers are judged
	claims    int  // that each process makes
	lossy     bool // servers lose their data often
	moving    bool // clients attach again, also through another process
}

// A clock shows offset + now * (1 + ppm/1000000).
type clock struct {
	offset Micros
	ppm    int64
}

func (c clock) at(now Micros) Micros { return c.offset + now + Micros(int64(now)*c.ppm/1e6) }

// when returns the earliest moment when the clock shows t.
func (c clock) when(t Micros) Micros {
	now := Micros(int64(t-c.offset)*1e6/(1e6+c.ppm)) - 2
	for c.at(now) < t {
		now++
	}
	return now
}

// A member is a server of the set, as its clients meet it.
type member struct {
	server *Server
	clock  clock
	vector []uint64 // the generations of all servers, as this one knows them
	up     bool     // it runs
	joined bool     // it takes part; a server that lost its data does not
	rejoin rejoin
}

// A process is one Party and its client.
type process struct {
	index  int
	life   int
	party  *Party
	clock  clock
	vector []uint64
	linked []bool // connections
	frozen bool   // a paused process does nothing
	client client
}

func (p *process) time(w *world) time.Duration {
	return time.Duration(p.clock.at(w.now)) * time.Microsecond
}

// An envelope is a request, reply or message on its way.
type envelope struct {
	process, life int
	server        int
	number        uint64 // of the request; 0: a message
	sent          time.Duration
	vector        []uint64
	request       *Request // else it goes to the process
	reply         *Reply
	message       *Message
	dead          bool // its connection broke: a request may still be executed, but nobody gets the reply
}

func newWorld(sc scope, b bug, seed func(n int64) int64) *world {
	w := &world{scope: sc, now: 1, bug: b}
	w.judge.init()
	drift := func() int64 { return seed(int64(sc.ppm)+1) - int64(sc.ppm)/2 }
	for range sc.servers {
		w.members = append(w.members, &member{
			server: NewServer(Limits{}),
			clock:  clock{offset: 1_000_000_000 + Micros(seed(1_000_000)), ppm: drift()},
			vector: make([]uint64, sc.servers),
			up:     true,
			joined: true,
		})
	}
	for i := range sc.processes {
		w.processes = append(w.processes, &process{
			index: i,
			clock: clock{offset: 1_000_000_000 * Micros(i+2), ppm: drift()},
		})
		w.start(w.processes[i])
	}
	return w
}

// start begins a new life of a process and its client.
func (w *world) start(p *process) {
	w.open(p)
	p.client = client{session: fmt.Sprintf("s%d-%d", p.index, p.life), next: 1}
	w.clientStarts(p)
	w.flush(p)
}

// open begins a new life of a process.
func (w *world) open(p *process) {
	p.life++
	p.frozen = false
	p.party = NewParty(Settings{
		Servers: w.scope.servers,
		To:      fmt.Sprint("p", p.index),
		Seed:    uint64(p.index*1000 + p.life),
	})
	if w.bug.party != nil {
		w.bug.party(p.party)
	}
	p.vector = make([]uint64, w.scope.servers)
	p.linked = make([]bool, w.scope.servers)
	for i := range w.members {
		if w.members[i].up && w.members[i].joined {
			w.connect(p, i)
		}
	}
}

func (w *world) tell(format string, args ...any) {
	if w.told {
		w.story = append(w.story, fmt.Sprintf("%8.3f ", float64(w.now)/1e6)+fmt.Sprintf(format, args...))
	}
}

// flush carries out what the party wants done.
func (w *world) flush(p *process) {
	for {
		out := p.party.Output()
		if len(out.Sends)+len(out.Answers)+len(out.Notices) == 0 {
			return
		}
		for i := range out.Sends {
			s := &out.Sends[i]
			e := &envelope{
				process: p.index, life: p.life, server: s.Server, number: s.Number, sent: p.time(w),
				vector: slices.Clone(p.vector), request: &s.Request,
			}
			if !p.linked[s.Server] {
				p.party.Failed(p.time(w), s.Number, true)
				continue
			}
			w.wire = append(w.wire, e)
		}
		for i := range out.Answers {
			w.clientAnswer(p, &out.Answers[i])
		}
		for i := range out.Notices {
			w.clientNotice(p, &out.Notices[i])
		}
	}
}

// connect makes the connection of p to a member that takes part.
func (w *world) connect(p *process, i int) {
	m := w.members[i]
	w.raise(p, m.vector)
	for k := range m.vector {
		m.vector[k] = max(m.vector[k], p.vector[k]) // written before use
	}
	if p.linked[i] {
		return
	}
	p.linked[i] = true
	w.up(p, i)
}

// raise makes p know the generations of a vector: servers with a new one lost their data.
func (w *world) raise(p *process, vector []uint64) {
	for i, g := range vector {
		if g > p.vector[i] {
			p.vector[i] = g
			w.cut(p, i, true)
		}
	}
}

// cut breaks the connection of p to a server.
func (w *world) cut(p *process, i int, lost bool) {
	if !p.linked[i] && !lost {
		return
	}
	p.linked[i] = false
	if lost {
		w.tell("p%d learns that server %d lost its data", p.index, i)
		p.party.Lost(p.time(w), i)
	} else {
		p.party.Down(p.time(w), i)
	}
	var failed []uint64
	for _, e := range w.wire {
		if e.process == p.index && e.life == p.life && e.server == i && !e.dead {
			e.dead = true
			if e.number != 0 {
				failed = append(failed, e.number)
			}
		}
	}
	w.sweep()
	for _, number := range failed {
		p.party.Failed(p.time(w), number, false)
	}
	w.flush(p)
}

// sweep forgets replies and messages that nobody gets.
func (w *world) sweep() {
	w.wire = slices.DeleteFunc(w.wire, func(e *envelope) bool {
		p := w.processes[e.process]
		return e.request == nil && (e.dead || e.life != p.life)
	})
}

// deliver lets the envelope arrive.
func (w *world) deliver(e *envelope, keep bool) {
	if !keep {
		at := slices.Index(w.wire, e)
		w.wire = slices.Delete(w.wire, at, at+1)
	}
	p := w.processes[e.process]
	switch {
	case e.request != nil:
		w.execute(e, p)
	case e.message != nil:
		w.tell("p%d gets a message of server %d: %s", p.index, e.server, stateText(&e.message.Claim))
		if w.bug.onState != nil {
			w.bug.onState(w, p, &e.message.Claim)
		}
		p.party.Message(p.time(w), e.server, *e.message)
		w.flush(p)
	default:
		for i := range e.reply.Claims {
			if w.bug.onState != nil {
				w.bug.onState(w, p, &e.reply.Claims[i])
			}
		}
		if w.bug.onReply != nil {
			w.bug.onReply(w, p, e)
		}
		w.tell("p%d gets reply %d of server %d: %s", p.index, e.number, e.server, replyText(e.reply))
		p.party.Reply(p.time(w), e.number, e.sent, *e.reply)
		w.flush(p)
	}
}

// execute lets a member execute a request.
func (w *world) execute(e *envelope, p *process) {
	m := w.members[e.server]
	alive := !e.dead && e.life == p.life
	if !m.up || !m.joined {
		if alive {
			w.fail(p, e)
		}
		return
	}
	for k, g := range m.vector {
		if e.vector[k] < g {
			w.tell("server %d refuses request %d of p%d: its generations are old", e.server, e.number, p.index)
			if alive {
				vector := slices.Clone(m.vector)
				w.fail(p, e)
				w.raise(p, vector)
			}
			return
		}
	}
	for k, g := range e.vector {
		m.vector[k] = max(m.vector[k], g)
	}
	request := *e.request
	reply, messages := w.apply(m, request)
	w.tell("server %d executes request %d of p%d: %s -> %s", e.server, e.number, p.index,
		requestText(&request), replyText(&reply))
	if alive {
		w.wire = append(w.wire, &envelope{
			process: e.process, life: e.life, server: e.server, number: e.number, sent: e.sent, reply: &reply,
		})
	}
	for i := range messages {
		to := w.processOf(messages[i].To)
		if to != nil && to.linked[e.server] {
			w.wire = append(w.wire, &envelope{process: to.index, life: to.life, server: e.server, message: &messages[i]})
		}
	}
}

// fail breaks the connection by which e came.
func (w *world) fail(p *process, e *envelope) {
	w.wire = append(w.wire, e)
	w.cut(p, e.server, false)
	w.wire = slices.DeleteFunc(w.wire, func(o *envelope) bool { return o == e })
}

func (w *world) apply(m *member, r Request) (Reply, []Message) {
	now := m.clock.at(w.now)
	if w.bug.apply != nil {
		return w.bug.apply(m.server, now, r)
	}
	return m.server.Apply(now, r)
}

func (w *world) processOf(to string) *process {
	for _, p := range w.processes {
		if to == fmt.Sprint("p", p.index) {
			return p
		}
	}
	return nil
}

func stateText(c *ClaimState) string {
	text := fmt.Sprintf("%d %s", c.ID, c.State)
	switch c.State {
	case lockkeeper.Held:
		text += fmt.Sprintf(" vote %d", c.Vote)
	case lockkeeper.Ended:
		text += " " + c.Reason.String()
	}
	text += fmt.Sprintf(" counter %d", c.Counter)
	if c.Ask != nil {
		text += fmt.Sprintf(" asked by %s until %d", c.Ask.By, c.Ask.End)
	}
	if c.Unsure != 0 {
		text += fmt.Sprintf(" unsure %d", c.Unsure)
	}
	return text
}

var kindNames = [...]string{
	Attach: "Attach", Renew: "Renew", Claim: "Claim", Stamp: "Stamp", Return: "Return", End: "End", Lapse: "Lapse",
	Leave: "Leave", Restore: "Restore", Ack: "Ack", Revoke: "Revoke", List: "List",
}

func requestText(r *Request) string {
	text := fmt.Sprintf("%s %s epoch %d", kindNames[r.Kind], r.Session, r.Epoch)
	switch r.Kind {
	case Attach:
		text += fmt.Sprintf(" new epoch %d named %d", r.Attach.NewEpoch, r.Attach.Named)
	case Claim:
		text += fmt.Sprintf(" %d %v priority %d ticket %d %s after %d", r.ID, r.Want.Paths, r.Want.Priority, r.Want.Ticket,
			r.Want.Steal, r.Want.After)
	case Stamp:
		text += fmt.Sprintf(" %d vote %d fence %d", r.ID, r.Vote, r.Fence)
	case Return:
		text += fmt.Sprintf(" %d vote %d for %s", r.ID, r.Vote, r.Favour)
	case End, Lapse:
		text += fmt.Sprintf(" %d %s", r.ID, r.Reason)
	case Restore:
		for _, c := range r.Restore.Claims {
			text += fmt.Sprintf(" %d fence %d above %d", c.ID, c.Fence, c.Above)
		}
	case Ack:
		text += fmt.Sprintf(" %v", r.Acks)
	}
	return text
}

var outcomeNames = [...]string{"nothing", "Done", "NoSession", "OtherEpoch", "NotKnown", "Differs", "Full"}

func replyText(r *Reply) string {
	parts := []string{fmt.Sprintf("%s at %d until %d", outcomeNames[r.Outcome], r.Now, r.Until)}
	for i := range r.Claims {
		parts = append(parts, stateText(&r.Claims[i]))
	}
	return strings.Join(parts, "; ")
}

func (w *world) up(p *process, i int) { p.party.Up(p.time(w), i) }
