package replica

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
)

// faultKinds are the faults that a world may have. m is a machine that the schedule has chosen.
var faultKinds = []struct {
	name string
	do   func(w *world, m *machine, f *fault)
}{
	{"crash", func(w *world, m *machine, f *fault) { w.crashFor(m, f) }},
	{"crash of the leader", func(w *world, _ *machine, f *fault) { w.crashFor(w.leader(), f) }},
	{"pause", func(w *world, m *machine, f *fault) { w.pause(m, f.lasts) }},
	{"pause of the leader", func(w *world, _ *machine, f *fault) { w.pause(w.leader(), f.lasts) }},
	{"partition", func(w *world, _ *machine, f *fault) { w.split(f) }},
	{"the leader is cut off", func(w *world, _ *machine, f *fault) { w.isolate(w.leader(), f.lasts) }},
	{"one way", func(w *world, m *machine, f *fault) { w.oneWay(m, f) }},
	{"one way to or from the leader", func(w *world, _ *machine, f *fault) { w.oneWay(w.leader(), f) }},
	{"bad network", func(w *world, _ *machine, f *fault) { w.badNetwork(f) }},
	{"slow disk", func(w *world, m *machine, f *fault) { w.slowDisk(m, f) }},
	{"full disk, syncs wait", func(w *world, m *machine, f *fault) { w.fillDisk(m, f.lasts) }},
	{"full disk, writes fail", func(w *world, m *machine, f *fault) { w.failDisk(m, f) }},
	{"client gone", func(w *world, _ *machine, f *fault) { w.clients[f.which%len(w.clients)].vanish() }},
	{"disk lost", func(w *world, m *machine, f *fault) { w.loseDisk(m) }},
	{"node leaves", func(w *world, m *machine, f *fault) { w.leave(m, f.lasts) }},
	{"slow clock", func(w *world, m *machine, f *fault) { w.slowClock(m, f) }},
	{"slow clock of the leader", func(w *world, _ *machine, f *fault) { w.slowClock(w.leader(), f) }},
	{"bad clock", func(w *world, m *machine, f *fault) { w.bendClock(m, f) }}, // the last one: see scheduleOf
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

func (w *world) crashFor(m *machine, f *fault) {
	if m.replica == nil {
		return
	}
	m.crash(f.chance(0.5))
	w.after(f.lasts, func() {
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

func (w *world) split(f *fault) {
	side := make([]bool, len(w.machines))
	for i := range side {
		side[i] = f.chance(0.5)
	}
	var links []link
	for i := range side {
		for k := range side {
			if side[i] != side[k] {
				links = append(links, link{i, k})
			}
		}
	}
	w.cutFor(f.lasts, links...)
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
func (w *world) oneWay(m *machine, f *fault) {
	w.saw("cut one way")
	mute := f.chance(0.5)
	var links []link
	for _, other := range w.machines {
		if mute {
			links = append(links, link{m.number, other.number})
		} else {
			links = append(links, link{other.number, m.number})
		}
	}
	w.cutFor(f.lasts, links...)
}

func (w *world) badNetwork(f *fault) {
	n := &w.network
	n.lose, n.double, n.late = f.random.Float64()/3, f.random.Float64()/3, f.random.Float64()/20
	n.slowest = f.between(0, 500*time.Millisecond)
	w.after(f.lasts, func() { n.lose, n.double, n.late, n.slowest = 0, 0, 0, 0 })
}

func (w *world) slowDisk(m *machine, f *fault) {
	m.disk.slowest = f.between(0, time.Second)
	w.after(f.lasts, func() { m.disk.slowest = usualSync })
}

func (w *world) fillDisk(m *machine, d time.Duration) {
	w.saw("disk full")
	m.disk.full = true
	w.after(d, func() { m.disk.full = false })
}

var errDiskFull = errors.New("no space left on the disk")

// failDisk lets a write fail, so that the node stops, and starts it again later: what was written and
// not synced is then there, or the last part of it is not.
func (w *world) failDisk(m *machine, f *fault) {
	if m.replica == nil {
		return
	}
	w.saw("disk failed")
	w.tracef("%s can't write", m.name)
	m.input(0, func(r *Replica) { r.Failed(m.clock.read(), errDiskFull) })
	life := m.life
	w.after(f.lasts, func() {
		if m.life == life {
			m.crash(true)
			m.start()
		}
	})
}

// leave turns a machine off for d, so that it does not vote, and leaves the configuration.
func (w *world) leave(m *machine, d time.Duration) {
	off := 0
	for _, other := range w.machines {
		if other.off {
			off++
		}
	}
	if off+w.profile.voters >= len(w.machines) {
		return
	}
	w.saw("node turned off")
	w.tracef("%s is turned off for %s", m.name, d)
	m.off = true
	w.after(2*d, func() { m.off = false })
}

// slowClock lets a boot clock go back, run slowly, or stop. Leases only get longer by that.
func (w *world) slowClock(m *machine, f *fault) {
	w.saw("clock slow")
	value, rate := m.clock.read(), m.clock.rate
	switch f.random.IntN(3) {
	case 0:
		value = max(0, value-f.between(0, time.Hour))
	case 1:
		rate = f.random.Float64()
	case 2:
		rate = 0
	}
	w.setClock(m, f, value, rate)
}

// loseDisk replaces a machine with an empty one, if all voters are well and the others are a majority
// without it: the loss of a majority of disks is beyond the promises.
func (w *world) loseDisk(m *machine) {
	leader := w.leader()
	if m.replica == nil || leader == m || leader.replica == nil || !leader.replica.Status().Ready ||
		leader.replica.lead.changing {
		return
	}
	all, rest := 0, 0
	for _, p := range leader.replica.Peers() {
		if w.profile.learners && p.ID == m.id && p.Role == voters.Voter {
			return
		}
		if p.Silent > 0 || !p.CaughtUp || w.byID[p.ID].id != p.ID {
			return
		}
		if p.Role == voters.Voter {
			all++
			if p.ID != m.id {
				rest++
			}
		}
	}
	if all < w.profile.voters || rest <= all/2 {
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

// bendClock lets a boot clock jump ahead, or run too fast.
func (w *world) bendClock(m *machine, f *fault) {
	w.saw("clock bent")
	value, rate := m.clock.read(), m.clock.rate
	if f.chance(0.5) {
		value += f.between(0, time.Hour)
	} else {
		rate = 1 + f.random.Float64()*2
	}
	w.setClock(m, f, value, rate)
}

// setClock sets a clock; later it goes on with its own rate from there.
func (w *world) setClock(m *machine, f *fault, value time.Duration, rate float64) {
	w.tracef("%s: clock from %s to %s, rate %f", m.name, m.clock.read(), value, rate)
	m.clock.set(value, rate)
	w.after(f.lasts, func() { m.clock.set(m.clock.read(), m.clock.own) })
}

// heal ends all faults.
func (w *world) heal() {
	w.tracef("the world is whole")
	w.network.heal()
	for _, m := range w.machines {
		m.disk.full, m.disk.slowest, m.paused, m.off = false, usualSync, 0, false
		m.clock.set(m.clock.read(), m.clock.own)
		if m.replica == nil {
			m.start()
		} else if m.replica.Status().Failed != nil {
			m.crash(false)
			m.start()
		}
	}
	for _, c := range w.clients {
		c.grantedBefore = c.granted
	}
}

// operate is what the surroundings of a leader do for the configuration, by package voters. As in the
// product, the leader's process decides by what it sees at that moment, also after a pause.
func (w *world) operate() {
	w.after(500*time.Millisecond, w.operate)
	leader := w.leader()
	if leader.replica == nil {
		return
	}
	leader.input(0, func(r *Replica) {
		if len(r.Peers()) == 0 {
			return
		}
		members := w.members(leader)
		if w.profile.learners {
			w.addLearner(leader, members)
			return
		}
		policy := voters.Policy{Voters: w.profile.voters, Grace: 3 * time.Second}
		c, ok := voters.Next(policy, members, leader.id)
		if ok && r.Change(leader.clock.read(), c, nodeSetting(r, c)) == nil {
			w.saw("voters: " + c.Kind.String())
			w.tracef("%s: %s node %d", leader.name, c.Kind, c.ID)
		} else if to, yields := voters.Yield(members, leader.id); yields {
			w.saw("leadership transferred")
			r.Transfer(leader.clock.read(), to.ID)
		}
	})
}

// foundNodes returns what the first nodes of a cluster have on their disks, with a setting for each.
func foundNodes(w *world, ids []uint64) State {
	b := Beginning{Voters: ids}
	for _, id := range ids {
		b.Settings = append(b.Settings, Setting{Key: nodeKey(id), Value: []byte("votes")})
	}
	s, err := Found(b)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func nodeKey(id uint64) string { return fmt.Sprintf("node/%x", id) }

// nodeSetting returns what a change of the configuration does to the setting of its node.
func nodeSetting(r *Replica, c voters.Change) Setting {
	s := r.Setting(nodeKey(c.ID))
	switch c.Kind {
	case voters.Add:
		s.Value = []byte("here")
	case voters.Promote:
		s.Value = []byte("votes")
	case voters.Remove:
		s.Value = nil
	}
	return s
}

// addLearner adds a machine that is outside as a learner, and removes an id whose disk is lost. The
// voters stay.
func (w *world) addLearner(leader *machine, members []voters.Member) {
	for _, m := range members {
		c := voters.Change{Kind: voters.Add, ID: m.ID}
		switch {
		case m.Retired:
			c.Kind = voters.Remove
		case m.Role != voters.Outside:
			continue
		}
		_ = leader.replica.Change(leader.clock.read(), c, nodeSetting(leader.replica, c))
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
		if m.replica == nil || m.paused > w.now || m.replica.Status().Failed != nil {
			outside.Silent = time.Second
		}
		members = append(members, outside)
	}
	return members
}

func (m *machine) node() voters.Node {
	n := voters.Node{Name: m.name, Rank: 5, Random: uint32(m.number)}
	switch {
	case m.off:
		n.Rank = voters.Off
	case m.number == 1:
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
