package canalsteps

import (
	"fmt"
	"slices"
	"strings"
)

// schedule says who does the first step, the second one, and so on.
type schedule []int

// shortest is a shortest schedule that ends with a step.
func (x *explorer) shortest(last arrow) (s schedule) {
	for a := last; ; a = x.from[a.state] {
		s = append(s, int(a.worker))
		if a.state == 0 {
			break
		}
	}
	slices.Reverse(s)
	return s
}

// story tells a shortest schedule that leads to the fault, one line a step.
func (x *explorer) story() string {
	told := x.play(x.shortest(x.last))
	text := strings.Join(told.lines, "\n") + "\n"
	if x.circle != nil {
		way := len(told.lines)
		told = x.play(append(x.shortest(x.last), x.around()...))
		text += "and from here:\n" + strings.Join(told.lines[way:], "\n") + "\n"
	}
	return text + fmt.Sprintf("%v: %s\n", x.fault.rule, x.fault.text)
}

// around is the schedule of the circle.
func (x *explorer) around() (s schedule) {
	for i, n := range x.circle {
		next := x.circle[(i+1)%len(x.circle)]
		for worker := range x.programs {
			p := x.states.values[n]
			st := x.unpack(p)
			if st.workers[worker].at == finished || !x.step(&st, worker) {
				continue
			}
			if x.pack(p, &st, worker) == x.states.values[next] {
				s = append(s, worker)
				break
			}
		}
	}
	return s
}

// told is a schedule that was played.
type told struct {
	state state
	lines []string
}

// play goes along a schedule and tells what happens.
func (x *explorer) play(s schedule) told {
	played := told{state: x.start()}
	var begun [mostWorkers]int // calls of each worker that were told of
	for i, worker := range s {
		w := &played.state.workers[worker]
		name := x.steps[w.at].name
		if int(w.call) == begun[worker] {
			played.lines = append(played.lines, fmt.Sprintf("       %c: %v", 'A'+worker, x.programs[worker][w.call]))
			begun[worker]++
		}
		var said []string
		x.tell = &said
		if !x.step(&played.state, worker) {
			said = []string{"has to wait"}
		}
		x.tell = nil
		played.lines = append(played.lines, fmt.Sprintf("%3d  %c  %-12s %s", i+1, 'A'+worker, name, strings.Join(said, "; ")))
	}
	return played
}
