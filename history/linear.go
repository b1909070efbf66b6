package history

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockkeeper/lockkeeper"
)

// maxTime bounds the search for one path. A history undecided by then counts as linearizable; the
// other judgements need no search and have no bound.
const maxTime = 5 * time.Second

// judgeLinear checks linearizability, path by path. A path qualifies if each of its claims has one
// target, exclusive or permits, and if no claim has an ancestor or descendant of the path. A path
// that qualifies must behave like a sequential lock or counting semaphore. The counters that holds
// guard must behave like sequential counters.
func judgeLinear(lives []*life, rules Rules) (wrong []string) {
	for path, all := range simplePaths(lives) {
		operations, model := lockOperations(all, rules), lockModel
		if all[0].ask.Targets[0].Mode == lockkeeper.ModePermits {
			operations, model = permitOperations(all, rules), permitModel
		}
		if porcupine.CheckOperationsTimeout(model.ToModel(), operations, maxTime) == porcupine.Illegal {
			wrong = append(wrong, fmt.Sprintf("linearizability: %s: no order of its %d operations explains their results:%s",
				path, len(operations), describe(operations)))
		}
	}
	for path, operations := range counters(lives) {
		if porcupine.CheckOperationsTimeout(counterModel, operations, maxTime) == porcupine.Illegal {
			wrong = append(wrong, fmt.Sprintf("linearizability: the counter %s was raised by two at once:%s", path,
				describe(operations)))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// simplePaths returns the claims of the paths that qualify.
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

// verb is the kind of an operation.
type verb string

const (
	take verb = "take"
	try  verb = "try" // refused, because the lock is held
	give verb = "give"
	// fall: a hold ends at the engine at an unknown time, perhaps after the end of the history
	fall verb = "fall"
	rise verb = "rise" // a counter is incremented
)

// step is the input of one operation.
type step struct {
	verb  verb
	claim string
	units int
	limit int
	inUse int   // the count of a grant of permits
	value int64 // the incremented value of a counter
	maybe bool  // the operation may not have happened
}

// lockOperations returns the operations on one exclusive lock.
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
		case l.refusedAtOnce():
			if !rules.SplitVotes {
				add(l, step{verb: try}, l.ask.At, l.answers[0].At)
			}
		default:
			add(l, step{verb: take, maybe: true}, l.ask.At, never)
			add(l, step{verb: fall, maybe: true}, l.ask.At, never)
		}
	}
	return operations
}

// addEnd adds the end of a granted claim. If rules.Forced is set, the claim may have ended long
// before an acknowledged release.
func (l *life) addEnd(rules Rules, add func(s step, call, ret time.Duration)) {
	switch {
	case l.end.Kind == Release && l.answered != never && !rules.Forced:
		add(step{verb: give}, l.ended, l.answered)
	case l.end.Kind == Release && !rules.Forced:
		add(step{verb: fall}, l.ended, never)
	case l.end.Kind != "":
		add(step{verb: fall}, l.grant.At, never)
	}
}

// permitOperations returns the operations on the permits of one path. It omits refusals, because
// they depend on the waiters ahead.
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
		case !l.refusedAtOnce():
			add(step{verb: take, maybe: true}, l.ask.At, never)
			add(step{verb: fall, maybe: true}, l.ask.At, never)
		}
	}
	return operations
}

// counters returns the operations on the counters that holds guard.
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

// lockModel is a sequential lock. Its state is the claim that holds it.
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

// permitModel is a sequential counting semaphore; each operation has its own limit. Its state is
// the number of held units. Other judgements find a release without a hold.
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

// counterModel is a sequential counter. Each increment adds one.
var counterModel = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, _ any) (bool, any) {
		value, s := state.(int64), input.(step)
		if s.maybe {
			return true, value // the history ends here; if the value was written, the next increment would show a fault
		}
		return s.value == value+1, s.value
	},
}

// describe lists operations for people.
func describe(operations []porcupine.Operation) string {
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
