package replica

import (
	"net/netip"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
)

// misbehave lets faults happen until end.
func (w *world) misbehave(end time.Duration) {
	if w.now >= end {
		return
	}
	m := w.machines[w.random.IntN(len(w.machines))]
	lasts := w.between(50*time.Millisecond, 5*time.Second)
	faults := []func(){
		func() { w.crashFor(m, lasts) },
		func() { w.crashFor(w.leader(), lasts) },
		func() { w.pause(m, lasts) },
		func() { w.pause(w.leader(), lasts) },
		func() { w.split(lasts) },
		func() { w.isolate(w.leader(), lasts) },
		func() { w.oneWay(m, lasts) },
		func() { w.badNetwork(lasts) },
		func() { w.slowDisk(m, lasts) },
		func() { w.fillDisk(m, lasts) },
		func() { w.clients[w.random.IntN(len(w.clients))].vanish() },
		func() { w.loseDisk(m) },
	}
	if w.profile.badClocks {
		faults = append(faults, func() { w.bendClock(m, lasts) })
	}
	faults[w.random.IntN(len(faults))]()
	w.after(w.between(100*time.Millisecond, 2*time.Second), func() { w.misbehave(end) })
}

// leader returns the machine that leads, or a machine.
func (w *world) leader() *machine {
	var best *machine
	for _, m := range w.machines {
		if m.replica == nil || m.paused > w.now || !m.replica.Status().Ready {
			continue
		}
		if best == nil || m.replica.Status().Term > best.replica.Status().Term {
			best = m
		}
	}
	if best == nil {
		return w.machines[0]
	}
	return best
}

func (w *world) crashFor(m *machine, d time.Duration) {
	if m.replica == nil {
		return
	}
	m.crash(w.chance(0.5))
	w.after(d, func() {
		if m.replica == nil {
			m.start()
		}
	})
}

func (w *world) pause(m *machine, d time.Duration) {
	w.tracef("%s pauses for %s", m.name, d)
	w.saw("pause")
	m.paused = max(m.paused, w.now+d)
}

// cutFor cuts links for d.
func (w *world) cutFor(d time.Duration, links ...link) {
	w.saw("cut")
	w.tracef("cut for %s: %v", d, links)
	for _, l := range links {
		w.network.cut[l] = true
	}
	w.after(d, func() {
		for _, l := range links {
			delete(w.network.cut, l)
		}
	})
}

func (w *world) split(d time.Duration) {
	side := make([]bool, len(w.machines))
	for i := range side {
		side[i] = w.chance(0.5)
	}
	var links []link
	for i := range side {
		for k := range side {
			if side[i] != side[k] {
				links = append(links, link{i, k})
			}
		}
	}
	w.cutFor(d, links...)
}

func (w *world) isolate(m *machine, d time.Duration) {
	var links []link
	for _, other := range w.machines {
		if other != m {
			links = append(links, link{m.number, other.number}, link{other.number, m.number})
		}
	}
	w.cutFor(d, links...)
}

// oneWay lets a machine send, and receive nothing; or receive, and send nothing.
func (w *world) oneWay(m *machine, d time.Duration) {
	mute := w.chance(0.5)
	var links []link
	for _, other := range w.machines {
		if mute {
			links = append(links, link{m.number, other.number})
		} else {
			links = append(links, link{other.number, m.number})
		}
	}
	w.cutFor(d, links...)
}

func (w *world) badNetwork(d time.Duration) {
	n := &w.network
	n.lose, n.double, n.late = w.random.Float64()/3, w.random.Float64()/3, w.random.Float64()/20
	n.slowest = w.between(0, 500*time.Millisecond)
	w.after(d, func() { n.lose, n.double, n.late, n.slowest = 0, 0, 0, 0 })
}

func (w *world) slowDisk(m *machine, d time.Duration) {
	m.disk.slowest = w.between(0, time.Second)
	w.after(d, func() { m.disk.slowest = usualSync })
}

func (w *world) fillDisk(m *machine, d time.Duration) {
	w.saw("disk full")
	m.disk.full = true
	w.after(d, func() { m.disk.full = false })
}

// loseDisk replaces a machine with an empty one, if all voters were well: the loss of a majority of
// disks is beyond the promises.
func (w *world) loseDisk(m *machine) {
	leader := w.leader()
	if m.replica == nil || leader == m || leader.replica == nil || !leader.replica.Status().Ready {
		return
	}
	well := 0
	for _, p := range leader.replica.Peers() {
		if w.profile.learners && p.ID == m.id && p.Role == voters.Voter {
			return
		}
		if p.Silent > 0 || !p.CaughtUp || w.byID[p.ID].id != p.ID {
			return
		}
		if p.Role == voters.Voter {
			well++
		}
	}
	if well < w.profile.voters {
		return
	}
	w.saw("disk lost")
	w.tracef("%s loses its disk", m.name)
	m.crash(true)
	if w.profile.bug == oldID {
		m.disk.reset(State{})
	} else {
		m.newID()
	}
	m.start()
}

// bendClock lets a boot clock jump, run at a wrong rate, or stop.
func (w *world) bendClock(m *machine, d time.Duration) {
	w.saw("clock bent")
	value, rate := m.clock.read(), m.clock.rate
	switch w.random.IntN(4) {
	case 0:
		value += w.between(0, time.Hour)
	case 1:
		value = max(0, value-w.between(0, time.Hour))
	case 2:
		rate = w.random.Float64() * 3
	case 3:
		rate = 0
	}
	w.tracef("%s: clock from %s to %s, rate %f", m.name, m.clock.read(), value, rate)
	m.clock.set(value, rate)
	w.after(d, func() { m.clock.set(m.clock.read(), 1) })
}

// heal ends all faults.
func (w *world) heal() {
	w.tracef("the world is whole")
	w.network.heal()
	for _, m := range w.machines {
		m.disk.full, m.disk.slowest, m.paused = false, usualSync, 0
		if m.replica == nil {
			m.start()
		}
	}
}

// operate is what the surroundings of a leader do for the configuration, by package voters.
func (w *world) operate() {
	w.after(500*time.Millisecond, w.operate)
	leader := w.leader()
	if leader.replica == nil || len(leader.replica.Peers()) == 0 {
		return
	}
	if w.profile.learners {
		w.addLearner(leader)
		return
	}
	policy := voters.Policy{Voters: w.profile.voters, Grace: 3 * time.Second}
	members := w.members(leader)
	leader.input(0, func(r *Replica) {
		if c, ok := voters.Next(policy, members, leader.id); ok && r.Change(leader.clock.read(), c) == nil {
			w.saw("voters: " + c.Kind.String())
			w.tracef("%s: %s node %d", leader.name, c.Kind, c.ID)
		} else if to, yields := voters.Yield(members, leader.id); yields {
			w.saw("leadership transferred")
			r.Transfer(leader.clock.read(), to.ID)
		}
	})
}

// addLearner adds a machine that is outside as a learner, and removes an id whose disk is lost. The
// voters stay.
func (w *world) addLearner(leader *machine) {
	for _, m := range w.members(leader) {
		c := voters.Change{Kind: voters.Add, ID: m.ID}
		switch {
		case m.Retired:
			c.Kind = voters.Remove
		case m.Role != voters.Outside:
			continue
		}
		leader.input(0, func(r *Replica) { _ = r.Change(leader.clock.read(), c) })
		return
	}
}

// members returns the machines and their former ids as the leader sees them. A machine whose id was
// removed gets a new one.
func (w *world) members(leader *machine) (members []voters.Member) {
	peers := leader.replica.Peers()
	for _, p := range peers {
		m := w.byID[p.ID]
		m.member = m.member || m.id == p.ID
		members = append(members, voters.Member{
			Node: m.node(), ID: p.ID, Role: p.Role, Silent: p.Silent, CaughtUp: p.CaughtUp, Retired: m.id != p.ID,
		})
	}
	for _, m := range w.machines {
		if slices.ContainsFunc(peers, func(p Peer) bool { return p.ID == m.id }) {
			continue
		}
		if m.member && m.replica != nil {
			m.crash(false)
			m.newID()
			m.start()
		}
		outside := voters.Member{Node: m.node(), ID: m.id}
		if m.replica == nil || m.paused > w.now {
			outside.Silent = time.Second
		}
		members = append(members, outside)
	}
	return members
}

func (m *machine) node() voters.Node {
	n := voters.Node{Name: m.name, Rank: 5, Random: uint32(m.number)}
	if m.number == 1 {
		n.Rank = voters.Leads
	}
	n.Address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(m.number)}), 7000)
	return n
}

// readSometimes reads at a random machine, again and again.
func (w *world) readSometimes() {
	w.after(w.between(0, 300*time.Millisecond), w.readSometimes)
	m := w.machines[w.random.IntN(len(w.machines))]
	m.input(0, func(r *Replica) {
		began := m.judge.changes
		m.reads[r.Read(m.clock.read())] = func(err error) { m.judge.read(m, began, err) }
	})
}
