package interleave_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/semaphore/internal/interleave"
)

// judge knows all ghosts that the calls and returns so far allow. A return that no
// ghost allows shows that the calls can't be put into an order that the
// specification allows.
//
// Such a set of ghosts is a state of the judge, and has a number. What comes after
// a state with an event is computed once.
type judge struct {
	state  int
	states []map[ghost]bool
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
	j.number(map[ghost]bool{{}: true})
	return j
}

// Begin forgets what has happened.
func (j *judge) Begin() { j.state = 0 }

// State is the number of the state.
func (j *judge) State() uint64 { return uint64(j.state) }

// Tell is an event as text.
func (j *judge) Tell(e interleave.Event) string { return unpack(e).String() }

// Note is told each event.
func (j *judge) Note(e interleave.Event) error {
	v, ok := j.after[step{j.state, e}]
	if !ok {
		v = j.next(unpack(e))
		j.after[step{j.state, e}] = v
	}
	j.state = v.state
	return v.err
}

func (j *judge) next(e event) verdict {
	ghosts := map[ghost]bool{}
	for g := range j.states[j.state] {
		c := &g.calls[e.by]
		switch {
		case !e.returned:
			*c = ghostCall{event: e, stage: isCalled}
		case c.stage == isOver && c.result == e.result:
			*c = ghostCall{}
		default:
			continue
		}
		ghosts[g] = true
	}
	if len(ghosts) == 0 {
		return verdict{j.state, fmt.Errorf("no order of the calls allows this return: %s", e)}
	}
	return verdict{state: j.number(closed(ghosts))}
}

// closed adds all ghosts that these can become by moves.
func closed(ghosts map[ghost]bool) map[ghost]bool {
	todo := []ghost{}
	for g := range ghosts {
		todo = append(todo, g)
	}
	for len(todo) > 0 {
		g := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		g.moves(func(next ghost) {
			if !ghosts[next] {
				ghosts[next] = true
				todo = append(todo, next)
			}
		})
	}
	return ghosts
}

// number is the number of a set of ghosts.
func (j *judge) number(ghosts map[ghost]bool) int {
	var texts []string
	for g := range ghosts {
		texts = append(texts, fmt.Sprint(g))
	}
	slices.Sort(texts)
	text := strings.Join(texts, "\n")
	n, ok := j.known[text]
	if !ok {
		n = len(j.states)
		j.known[text] = n
		j.states = append(j.states, ghosts)
	}
	return n
}
