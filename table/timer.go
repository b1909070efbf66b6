package table

import (
	"cmp"
	"strings"
	"time"
)

// A timer is the next instant at which time alone changes a claim, a session or a freeze; exactly
// one of these fields is set. The timer is in the schedule exactly while at is not forever.
type timer struct {
	at      time.Duration
	index   int           // in the schedule, counted from 1; 0 if it is not there
	bound   time.Duration // of a claim: when its wait ends; forever if never
	claim   *claim
	session *session
	freeze  *freeze
}

// compare orders timers of one instant: sessions by id, then claims by ref, then freezes by path.
// So the order does not depend on the history of the heap, and a replay gives the same table.
func (a *timer) compare(b *timer) int {
	if o := cmp.Compare(a.rank(), b.rank()); o != 0 {
		return o
	}
	switch {
	case a.session != nil:
		return strings.Compare(a.session.id, b.session.id)
	case a.claim != nil:
		return compareRefs(a.claim.ref(), b.claim.ref())
	}
	return strings.Compare(string(a.freeze.path), string(b.freeze.path))
}

func (a *timer) rank() int {
	switch {
	case a.session != nil:
		return 0
	case a.claim != nil:
		return 1
	}
	return 2
}

// A schedule is a binary heap of timers. Each timer has its index, so that the heap can remove it
// at once. (container/heap would cost an interface call for each comparison, in every bounded
// wait.)
type schedule []*timer

// set moves tm to the instant at; forever removes it.
func (s *schedule) set(tm *timer, at time.Duration) {
	if tm.index != 0 && tm.at == at {
		return
	}
	switch {
	case at == forever:
		if tm.index != 0 {
			s.remove(tm.index - 1)
		}
		tm.at = forever
	case tm.index == 0:
		tm.at = at
		*s = append(*s, tm)
		tm.index = len(*s)
		s.up(len(*s) - 1)
	default:
		tm.at = at
		s.up(tm.index - 1)
		s.down(tm.index - 1)
	}
}

func (s *schedule) remove(i int) {
	h := *s
	h[i].index = 0
	last := len(h) - 1
	if i != last {
		h[i] = h[last]
		h[i].index = i + 1
	}
	h[last] = nil
	*s = h[:last]
	if i != last {
		s.up(i)
		s.down(i)
	}
}

func (s schedule) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if s[parent].at <= s[i].at {
			return
		}
		s.swap(i, parent)
		i = parent
	}
}

func (s schedule) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(s) {
			return
		}
		if right := child + 1; right < len(s) && s[right].at < s[child].at {
			child = right
		}
		if s[i].at <= s[child].at {
			return
		}
		s.swap(i, child)
		i = child
	}
}

func (s schedule) swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i+1, j+1
}

// next returns the earliest instant in the schedule; forever if it is empty.
func (s schedule) next() time.Duration {
	if len(s) == 0 {
		return forever
	}
	return s[0].at
}
