package replica

import "slices"

// arrivals are the calls that have reached a leader since it was elected, so that it decides about each
// of them once. A leader takes only calls that were sent to it for its term. So all copies of a call come
// to this one memory, and the next leader needs none of it. A node keeps it after it has led, because it
// refuses what it never had in that term, and nothing else.
type arrivals map[uint64][]*window // by node; of one node by process, the latest one last

// mostProcesses bounds the processes of a node that a leader remembers. A copy of a call would have to
// be late by this many starts of its node, all under one leader, to be decided twice.
const mostProcesses = 64

// first notes that a call arrives, and reports whether it is certain that it never arrived before.
func (a arrivals) first(m *Message) bool { return a.of(m.From, m.Incarnation).first(m.Attempt) }

// of returns the window of a process.
func (a arrivals) of(node, incarnation uint64) *window {
	known := a[node]
	for i := len(known) - 1; i >= 0; i-- {
		if known[i].incarnation == incarnation {
			return known[i]
		}
	}
	if len(known) == mostProcesses {
		known = slices.Delete(known, 0, 1)
	}
	w := &window{incarnation: incarnation}
	a[node] = append(known, w)
	return w
}

// A window knows which numbers of one process have arrived, as that of RFC 4303 does: every number that
// is windowSize or more below the highest one counts as arrived.
type window struct {
	incarnation uint64
	highest     uint64
	seen        [windowSize / 64]uint64 // the bits of numbers in (highest - windowSize, highest]
}

const windowSize = 1024

// first notes that a number arrives, and reports whether it is certain that it never arrived before.
func (w *window) first(number uint64) bool {
	if number <= w.highest && w.highest-number >= windowSize {
		return false
	}
	if number > w.highest {
		for skipped := range min(number-w.highest, windowSize) {
			word, bit := w.place(number - skipped)
			*word &^= bit
		}
		w.highest = number
	}
	word, bit := w.place(number)
	fresh := *word&bit == 0
	*word |= bit
	return fresh
}

func (w *window) place(number uint64) (word *uint64, bit uint64) {
	return &w.seen[number%windowSize/64], 1 << (number % 64)
}
