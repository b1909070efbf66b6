package replica

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A putter counts one setting up, by reading it and by putting the next number, at any machine. It
// removes the setting now and then.
type putter struct {
	*world
	key string
}

// puts are what the judge knows of the changes of settings.
type puts struct {
	done   map[string]uint64 // revisions after a change: by key and revision before
	values map[uint64]string // what each revision says
	answer map[uint64]string // what it says by the answer
	acked  uint64            // the highest revision that was answered
	issued int               // puts that a machine got
	lost   int               // puts that lost the comparison: they are not made later either
}

func newPuts() puts {
	return puts{done: make(map[string]uint64), values: make(map[uint64]string),
		answer: make(map[uint64]string)}
}

// addPutters lets n putters count, each another setting.
func (w *world) addPutters(n int) {
	for i := range n {
		p := &putter{world: w, key: fmt.Sprintf("count%d", i)}
		w.after(w.between(0, time.Second), p.count)
	}
}

// count reads the setting and puts the next number, once, and again a bit later.
func (p *putter) count() {
	p.after(p.between(100*time.Millisecond, time.Second), p.count)
	m := p.machines[p.random.IntN(len(p.machines))]
	m.input(0, func(r *Replica) {
		atLeast := p.judge.puts.acked
		m.reads[r.Read(m.clock.read())] = func(err error) {
			if err != nil {
				return
			}
			if last := m.replica.settings.last; last < atLeast {
				p.faultf("stale read: %s has revision %d of the settings, revision %d was answered before", m.name, last, atLeast)
			}
			p.put(m)
		}
	})
}

// put puts the number after the one that m has.
func (p *putter) put(m *machine) {
	before := m.replica.Setting(p.key)
	n := 0
	_, _ = fmt.Sscan(string(before.Value), &n) // 0 if there is none
	next := Setting{Key: p.key, Value: []byte(fmt.Sprint(n + 1)), Revision: before.Revision}
	if n > 0 && p.chance(0.2) {
		next.Value = nil
	}
	m.input(0, func(r *Replica) {
		p.judge.puts.issued++
		m.calls[r.Put(m.clock.read(), next)] = func(a Answer) { p.answered(m, next, a) }
	})
}

func (p *putter) answered(m *machine, s Setting, a Answer) {
	ps := &p.judge.puts
	switch {
	case a.Err == nil:
		p.saw("setting changed")
		ps.acked = max(ps.acked, a.Revision)
		change := fmt.Sprintf("%s from %d", s.Key, s.Revision)
		if other, twice := ps.done[change]; twice {
			p.faultf("%s was changed twice, to revisions %d and %d", change, other, a.Revision)
		}
		ps.done[change] = a.Revision
		ps.answer[a.Revision] = stateOf(s)
	case errors.Is(a.Err, ErrRevision):
		p.saw("setting: lost the comparison")
		ps.lost++
		if a.Revision == s.Revision {
			p.faultf("%s refuses %v, though it has that revision", m.name, s)
		}
	case errors.Is(a.Err, lockkeeper.ErrUnavailable):
		p.saw("setting: " + cause(a.Err))
	default:
		p.faultf("%s: put %v: %v", m.name, s, a.Err)
	}
}

// changed holds what a machine tells of a setting against what the others tell.
func (j *judge) changed(m *machine, s Setting) {
	if s.Key == rulesKey && versionOf(s.Value) == later {
		j.raised(m)
	}
	state := stateOf(s)
	if other, known := j.puts.values[s.Revision]; known && other != state {
		j.faultf("%s: revision %d of a setting is %q, elsewhere it is %q", m.name, s.Revision, state, other)
	}
	j.puts.values[s.Revision] = state
}

// stateOf says what a revision makes of a setting.
func stateOf(s Setting) string {
	if len(s.Value) == 0 { // after a snapshot, several settings may be gone by one revision
		return "removed"
	}
	return fmt.Sprintf("%s=%s", s.Key, s.Value)
}

// settledPuts checks at the end of a quiet time that no change got lost or came from nowhere.
func (j *judge) settledPuts() {
	ps := &j.puts
	for revision, state := range ps.answer { // order does not matter: one of them is enough
		if ps.values[revision] != state {
			j.faultf("revision %d was answered as %q, the machines have %q", revision, state, ps.values[revision])
		}
	}
	numbers := 0
	for _, state := range ps.values { // order does not matter: a sum
		if strings.HasPrefix(state, "count") {
			numbers++
		}
	}
	if numbers > ps.issued-ps.lost {
		j.faultf("%d changes of settings, %d were asked for, of which %d lost the comparison", numbers, ps.issued, ps.lost)
	}
}
