package interleave_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/semaphore/internal/interleave"
)

// judge keeps the set of all states of the specification that the calls and returns so far allow. If
// a return leaves the set empty, no sequential order explains the results.
//
// A set is a state of the judge and has a number. The successor of a state by an event is computed
// once.
type judge struct {
	state  int
	states []map[spec]bool
	known  map[string]int
	after  map[step]verdict
}

type step struct {
	state int
	event interleave.Event
}

type verdict struct {
	state int
	err   error
}

func newJudge() *judge {
	j := &judge{known: map[string]int{}, after: map[step]verdict{}}
	j.number(map[spec]bool{{}: true})
	return j
}

// Begin starts an execution.
func (j *judge) Begin() { j.state = 0 }

// State returns the number of the state.
func (j *judge) State() uint64 { return uint64(j.state) }

// Describe returns an event as text.
func (j *judge) Describe(e interleave.Event) string { return unpack(e).String() }

// Record adds an event.
func (j *judge) Record(e interleave.Event) error {
	v, ok := j.after[step{j.state, e}]
	if !ok {
		v = j.next(unpack(e))
		j.after[step{j.state, e}] = v
	}
	j.state = v.state
	return v.err
}

func (j *judge) next(e event) verdict {
	set := map[spec]bool{}
	for g := range j.states[j.state] {
		c := &g.calls[e.by]
		switch {
		case !e.returned:
			*c = specCall{event: e, stage: isCalled}
		case c.stage == isOver && c.result == e.result:
			*c = specCall{}
		default:
			continue
		}
		set[g] = true
	}
	if len(set) == 0 {
		return verdict{j.state, fmt.Errorf("no order of the calls allows this return: %s", e)}
	}
	return verdict{state: j.number(closed(set))}
}

// closed adds all states that the set can reach by moves.
func closed(set map[spec]bool) map[spec]bool {
	todo := []spec{}
	for g := range set {
		todo = append(todo, g)
	}
	for len(todo) > 0 {
		g := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		g.moves(func(next spec) {
			if !set[next] {
				set[next] = true
				todo = append(todo, next)
			}
		})
	}
	return set
}

// number returns the number of a set of states.
func (j *judge) number(set map[spec]bool) int {
	var texts []string
	for g := range set {
		texts = append(texts, fmt.Sprint(g))
	}
	slices.Sort(texts)
	text := strings.Join(texts, "\n")
	n, ok := j.known[text]
	if !ok {
		n = len(j.states)
		j.known[text] = n
		j.states = append(j.states, set)
	}
	return n
}
