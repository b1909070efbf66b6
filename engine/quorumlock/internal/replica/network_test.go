package replica

import "time"

// A network loses, delays, doubles and reorders messages, and cuts links in one direction or both.
type network struct {
	*world
	lose    float64
	double  float64
	late    float64 // chance that a message is very late
	slowest time.Duration
	far     time.Duration // what each message takes besides
	cut     map[link]bool
	healed  bool // no more faults come
}

type link struct{ from, to int } // numbers of machines

const usualDelay = 3 * time.Millisecond

func (n *network) send(from *machine, m Message) {
	b, err := m.MarshalBinary()
	if err != nil {
		n.faultf("message %v of %s: %v", m, from.name, err)
		return
	}
	copies := 1
	if n.chance(n.double) {
		copies = 2
		n.saw("message doubled")
	}
	late := n.late
	if n.profile.lateCopies && m.Kind == kindCall && !n.healed {
		copies, late = 2, 0.5
	}
	to, sender, receiver := n.byID[m.To], m.From, m.To // the closure keeps no Message
	for range copies {
		if n.chance(n.lose) || to == nil || n.cut[link{from.number, to.number}] {
			n.saw("message lost")
			continue
		}
		delay := n.far + n.between(time.Millisecond/10, usualDelay+n.slowest)
		if n.chance(late) {
			delay = n.between(0, 10*time.Second)
			n.saw("message very late")
		}
		to.input(delay, func(r *Replica) {
			got := Message{From: sender, To: receiver}
			if err := got.UnmarshalBinary(b); err != nil {
				n.faultf("message %x of %s can't be read: %v", b, from.name, err)
			} else if receiver != to.id {
				n.saw("message to a former id")
			} else if err := r.Receive(to.clock.read(), got); err != nil && !n.judge.mayLackRules(to, err) {
				n.faultf("%s refuses a message of %s: %v", to.name, from.name, err)
			}
		})
	}
}

// heal makes the network whole.
func (n *network) heal() {
	n.lose, n.double, n.late, n.slowest = 0, 0, 0, 0
	n.healed = true
	clear(n.cut)
}
