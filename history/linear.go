package history

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockkeeper/lockkeeper"
)

// mostTime bounds the search for one path. A history that is not decided by then
// counts as legal here; the other judgements don't search.
const mostTime = 5 * time.Second

// judgeLinear: each path that was only ever asked for by claims of one target,
// exclusive or permits, and that meets no other path, behaves like a lock, or
// like a counting semaphore, that does one thing at a time; and so do the
// counters that holds guard.
func judgeLinear(lives []*life, rules Rules) (wrong []string) {
	for path, all := range simplePaths(lives) {
		operations, model := lockOperations(all, rules), lockModel
		if all[0].ask.Targets[0].Mode == lockkeeper.ModePermits {
			operations, model = permitOperations(all, rules), permitModel
		}
		if porcupine.CheckOperationsTimeout(model.ToModel(), operations, mostTime) == porcupine.Illegal {
			wrong = append(wrong, fmt.Sprintf("linearizability: %s: no order of its %d operations explains their results:%s",
				path, len(operations), show(operations)))
		}
	}
	for path, operations := range counters(lives) {
		if porcupine.CheckOperationsTimeout(counterModel, operations, mostTime) == porcupine.Illegal {
			wrong = append(wrong, fmt.Sprintf("linearizability: the counter %s was raised by two at once:%s", path,
				show(operations)))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// simplePaths groups the claims of those paths that can be judged alone.
func simplePaths(lives []*life) map[lockkeeper.Path][]*life {
	groups := make(map[lockkeeper.Path][]*life)
	modes := make(map[lockkeeper.Path]lockkeeper.Mode)
	bad := make(map[lockkeeper.Path]bool)
	for _, l := range lives {
		for _, t := range l.ask.Targets {
			simple := len(l.ask.Targets) == 1 && t.Mode != lockkeeper.ModeShared && l.convert == nil
			for _, s := range l.spans {
				simple = simple && !s.unconfirmed
			}
			if m, known := modes[t.Path]; !simple || known && m != t.Mode {
				bad[t.Path] = true
			}
			modes[t.Path] = t.Mode
			groups[t.Path] = append(groups[t.Path], l)
		}
	}
	for p := range groups {
		for above := range p.Ancestors() {
			if groups[above] != nil {
				bad[p], bad[above] = true, true
			}
		}
	}
	for p := range bad {
		delete(groups, p)
	}
	return groups
}

// verb is what an operation does.
type verb string

const (
	take verb = "take"
	try  verb = "try" // refused at once: it was taken
	give verb = "give"
	// a hold ends at the engine at a time that its client does not know, perhaps after all that the
	// history tells
	fall verb = "fall"
	rise verb = "rise"
)

// step is the input of one operation.
type step struct {
	verb  verb
	claim string
	units int
	limit int
	inUse int   // what a grant of permits told
	value int64 // what a counter was raised to
	maybe bool  // it may never have happened
}

// lockOperations are the operations on one exclusive lock.
func lockOperations(lives []*life, rules Rules) (operations []porcupine.Operation) {
	add := func(l *life, s step, call, ret time.Duration) {
		s.claim = l.ask.Claim
		operations = append(operations, operation(s, call, ret))
	}
	for _, l := range lives {
		switch {
		case l.grant != nil:
			add(l, step{verb: take}, l.ask.At, l.grant.At)
			l.addEnd(rules, func(s step, call, ret time.Duration) { add(l, s, call, ret) })
		case len(l.answers) == 0 || l.answers[0].Kind == Unknown:
			add(l, step{verb: take, maybe: true}, l.ask.At, never)
			add(l, step{verb: fall, maybe: true}, l.ask.At, never)
		case l.ask.Try && l.answers[0].Reason == lockkeeper.TimedOut:
			add(l, step{verb: try}, l.ask.At, l.answers[0].At)
		}
	}
	return operations
}

// addEnd adds how a granted claim ended. Where it may have been forced out, a
// release that was acknowledged may have found it ended long before.
func (l *life) addEnd(rules Rules, add func(s step, call, ret time.Duration)) {
	switch {
	case l.end.Kind == Release && l.settled != never && !rules.Forced:
		add(step{verb: give}, l.ended, l.settled)
	case l.end.Kind == Release && !rules.Forced:
		add(step{verb: fall}, l.ended, never)
	case l.end.Kind != "":
		add(step{verb: fall}, l.grant.At, never)
	}
}

// permitOperations are the operations on the permits of one path. Refusals are
// left out: whether there was room depends on who waited ahead.
func permitOperations(lives []*life, rules Rules) (operations []porcupine.Operation) {
	for _, l := range lives {
		units, limit := l.ask.Targets[0].Units, l.ask.Targets[0].Limit
		add := func(s step, call, ret time.Duration) {
			s.claim, s.units, s.limit = l.ask.Claim, units, limit
			operations = append(operations, operation(s, call, ret))
		}
		switch {
		case l.grant != nil:
			s := step{verb: take}
			if len(l.grant.Grants) > 0 {
				s.inUse = l.grant.Grants[0].InUse
			}
			add(s, l.ask.At, l.grant.At)
			l.addEnd(rules, add)
		case len(l.answers) == 0 || l.answers[0].Kind == Unknown:
			add(step{verb: take, maybe: true}, l.ask.At, never)
			add(step{verb: fall, maybe: true}, l.ask.At, never)
		}
	}
	return operations
}

// counters are the operations on the counters that holds guard.
func counters(lives []*life) map[lockkeeper.Path][]porcupine.Operation {
	all := make(map[lockkeeper.Path][]porcupine.Operation)
	for _, l := range lives {
		for _, c := range l.counts {
			s := step{verb: rise, claim: l.ask.Claim, value: c.value, maybe: c.ret == never}
			all[c.path] = append(all[c.path], operation(s, c.call, c.ret))
		}
	}
	return all
}

func operation(s step, call, ret time.Duration) porcupine.Operation {
	return porcupine.Operation{Input: s, Call: int64(call), Return: min(int64(ret), math.MaxInt64)}
}

// lockModel is a lock: its state is the claim that holds it.
var lockModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{""} },
	Step: func(state, input, _ any) []any {
		holder, s := state.(string), input.(step)
		var next []any
		if s.maybe {
			next = append(next, holder)
		}
		switch {
		case s.verb == take && holder == "":
			next = append(next, s.claim)
		case s.verb == try && holder != "":
			next = append(next, holder)
		case (s.verb == give || s.verb == fall) && holder == s.claim:
			next = append(next, "")
		case s.verb == give && holder != s.claim:
			return nil
		}
		return next
	},
}

// permitModel is a counting semaphore without a limit of its own: its state is
// the units in use. Who gives back what he does not hold is found elsewhere.
var permitModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{0} },
	Step: func(state, input, _ any) []any {
		used, s := state.(int), input.(step)
		var next []any
		if s.maybe {
			next = append(next, used)
		}
		switch {
		case s.verb == take && used+s.units <= s.limit && (s.inUse == 0 || s.inUse == used+s.units):
			next = append(next, used+s.units)
		case s.verb != take && used >= s.units:
			next = append(next, used-s.units)
		}
		return next
	},
}

// counterModel is a counter: each raise adds one to what it finds.
var counterModel = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, _ any) (bool, any) {
		value, s := state.(int64), input.(step)
		if s.maybe {
			return true, value // cut off: if it was written after all, the next one shows it as a fault
		}
		return s.value == value+1, s.value
	},
}

// show lists operations as people read them.
func show(operations []porcupine.Operation) string {
	text := ""
	for i, o := range operations {
		if i == 40 {
			return text + fmt.Sprintf(" and %d more", len(operations)-i)
		}
		s := o.Input.(step)
		text += fmt.Sprintf(" %s %s [%s, %s]", s.claim, s.verb, time.Duration(o.Call), at(time.Duration(o.Return)))
		switch {
		case s.units > 0 && s.verb == take:
			text += fmt.Sprintf(" %d of %d, %d in use", s.units, s.limit, s.inUse)
		case s.verb == rise:
			text += fmt.Sprintf(" to %d", s.value)
		case s.maybe:
			text += " (perhaps)"
		}
		text += ";"
	}
	return text
}
