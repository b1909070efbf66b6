package membership

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// StepKind says what a [Step] does to its server.
type StepKind uint8

const (
	// Tag gives an empty server, or one that lost its data, a new generation with Step.Count.
	Tag StepKind = iota + 1
	// Commit makes a tagged server a member at the first use.
	Commit
	// Relabel records the new process of a server that was durable and restarted.
	Relabel
	// Merge raises the generations in the marker of a member.
	Merge
	// PutOut reads the ends at the servers From, and records at the server when it may join.
	PutOut
	// Join makes a server a member whose time out has passed.
	Join
)

// A Step is a change of one server's record. A script makes it only if the record still is as it
// was observed.
type Step struct {
	Kind   StepKind
	Server int
	Count  uint32 // of Tag
	From   []int  // of PutOut: members whose markers have the vector
}

// A Plan is what to do about a set as it was observed.
type Plan struct {
	Vector Vector // the set, with the highest generation of each server; zero if there is none yet
	Steps  []Step

	// Members are the servers that can be used under Vector now. Their markers may be older until
	// the Merge steps are done.
	Members []bool
	// Lost says, for a server that answered and is no member, why.
	Lost []string
	// Err says why the set as a whole can't be used now: ErrNotYet, ErrForeign or ErrMajorityLost;
	// nil if a majority can be used, or may be after Steps.
	Err error
}

// Errors of a Plan, with words for people.
var (
	// ErrNotYet: too few servers answer. Waiting may help.
	ErrNotYet = errors.New("too few servers answer")
	// ErrForeign: the servers belong to another set than the caller names.
	ErrForeign = errors.New("the servers belong to another set")
	// ErrMajorityLost: a majority has lost its data. Only a new set helps.
	ErrMajorityLost = errors.New("a majority of the servers has lost its data")
)

// Decide returns the plan for the servers as observed. known is the vector that the caller knows
// already; zero if none. names are the addresses that the caller gave, in order.
func Decide(names []string, seen []Record, known Vector) Plan {
	return decide(names, seen, known, len(seen)/2+1)
}

// decide is Decide. barrier is how many members must know of a loss before the lost server may
// prepare its return: a majority; the model shows what fewer would do.
func decide(names []string, seen []Record, known Vector, barrier int) Plan {
	d := decision{names: names, seen: seen, n: len(seen), barrier: barrier}
	d.plan.Members, d.plan.Lost = make([]bool, d.n), make([]string, d.n)
	if err := d.checkNames(); err != nil {
		d.plan.Err = err
		return d.plan
	}
	for i := range seen {
		if r := &seen[i]; r.Answered && r.member() {
			if d.plan.Vector.Set == "" {
				d.plan.Vector = r.Vector
			}
			d.plan.Vector = d.plan.Vector.Merge(r.Vector)
		}
	}
	if d.plan.Vector.Set == "" {
		d.begin()
		return d.plan
	}
	if known.Set == d.plan.Vector.Set {
		d.plan.Vector = d.plan.Vector.Merge(known)
	}
	d.keep()
	return d.plan
}

type decision struct {
	names []string
	seen  []Record
	n     int
	plan  Plan

	barrier int // members
}

func (d *decision) add(s Step) { d.plan.Steps = append(d.plan.Steps, s) }

// present adds a step of a server that is no member yet. If the server was durable and restarted
// since its record was verified, that is verified first: its script refuses the step else.
func (d *decision) present(s Step) {
	if r := &d.seen[s.Server]; r.Recorded != r.RunID {
		s = Step{Kind: Relabel, Server: s.Server}
	}
	d.add(s)
}

// checkNames refuses servers that belong to a set of another size or order, or to different sets.
func (d *decision) checkNames() error {
	set := ""
	for i := range d.seen {
		r := &d.seen[i]
		if !r.Answered || r.Generation == 0 {
			continue
		}
		if r.Servers != d.n || r.Index != i {
			return fmt.Errorf("%w: %s is server %d of the %d servers %s: name these, in this order, or have all servers "+
				"forget their locks (lk reset URL)", ErrForeign, d.names[i], r.Index+1, r.Servers, strings.Join(r.Names, ","))
		}
		if !r.member() {
			continue
		}
		if set != "" && r.Vector.Set != set {
			return fmt.Errorf("%w: %s belongs to another set (%s) than the servers before it (%s)",
				ErrForeign, d.names[i], r.Vector.Set, set)
		}
		set = r.Vector.Set
	}
	return nil
}

// begin plans the first use: all servers answer, and none has been a member.
func (d *decision) begin() {
	var silent []string
	former := 0
	generations := make([]Generation, d.n)
	tagged := true
	for i := range d.seen {
		r := &d.seen[i]
		switch {
		case !r.Answered:
			silent = append(silent, d.names[i])
		case r.Vector.Set != "" || r.Generation.Count() > 1:
			former++ // it has been a member, and lost its data since
			d.plan.Lost[i] = r.loss()
		case !r.intact():
			tagged = false
			d.plan.Lost[i] = r.loss() // if another one shows that there was a set
			d.add(Step{Kind: Tag, Server: i, Count: 1})
		}
		generations[i] = r.Generation
	}
	switch {
	case former > 0:
		d.plan.Steps = nil
		d.requireMajority(0, len(silent))
	case len(silent) > 0:
		d.plan.Steps, d.plan.Lost = nil, make([]string, d.n)
		d.plan.Err = fmt.Errorf("%w: the first use of a set needs all %d servers, and there is no answer from %s",
			ErrNotYet, d.n, strings.Join(silent, ", "))
	case !tagged:
		d.plan.Lost = make([]string, d.n)
	default:
		d.plan.Vector = newVector(generations)
		for i := range d.seen {
			d.present(Step{Kind: Commit, Server: i})
		}
	}
}

// keep plans for a set that is there: it completes a first use, and returns servers to the set.
func (d *decision) keep() {
	v := &d.plan.Vector
	usable, silent := 0, 0
	for i := range d.seen {
		r := &d.seen[i]
		switch {
		case !r.Answered:
			silent++
		case r.member() && r.Generation == v.Generations[i]:
			usable++
			d.plan.Members[i] = true
			if r.Recorded != r.RunID {
				d.add(Step{Kind: Relabel, Server: i})
			}
		case r.intact() && r.Vector.Set == "" && r.Generation == v.Generations[i] && r.Generation.Count() == 1:
			usable++ // the party of the first use stopped before it committed this one
			d.present(Step{Kind: Commit, Server: i})
		default:
			d.plan.Lost[i] = r.loss()
		}
	}
	if d.requireMajority(usable, silent) {
		return
	}
	for i := range d.seen {
		if d.plan.Lost[i] != "" {
			d.readmit(i)
		}
	}
	for i := range d.seen {
		if d.plan.Members[i] && !d.seen[i].Vector.Equal(*v) {
			d.add(Step{Kind: Merge, Server: i})
		}
	}
}

// requireMajority sets Err if fewer than a majority can be used, and reports whether it did. If a majority
// is lost, it plans nothing.
func (d *decision) requireMajority(usable, silent int) bool {
	majority := d.n/2 + 1
	if usable >= majority {
		return false
	}
	var lost, quiet []string
	for i := range d.seen {
		if d.plan.Lost[i] != "" {
			lost = append(lost, d.names[i]+" ("+d.plan.Lost[i]+")")
		} else if !d.seen[i].Answered {
			quiet = append(quiet, d.names[i])
		}
	}
	if usable+silent >= majority {
		d.plan.Err = fmt.Errorf("%w: %d of %d are needed, and there is no answer from %s", ErrNotYet, majority, d.n,
			strings.Join(quiet, ", "))
		return true
	}
	d.plan.Steps = nil
	d.plan.Err = fmt.Errorf("%w: %s", ErrMajorityLost, strings.Join(lost, ", "))
	return true
}

// readmit plans the next step for a server that lost its data: a generation of its own, the
// barrier, the time out, the return.
func (d *decision) readmit(i int) {
	r, v := &d.seen[i], &d.plan.Vector
	stated := v.Generations[i]
	fresh := r.intact() && r.Vector.Set == "" && (r.Generation == stated && stated.Count() > 1 ||
		r.Generation > stated && r.Generation.Count() > stated.Count())
	if !fresh {
		count := max(stated.Count(), r.Generation.Count()) + 1
		if count > maxCount {
			d.plan.Err = fmt.Errorf("%w: %s has lost its data too often", ErrMajorityLost, d.names[i])
			return
		}
		d.add(Step{Kind: Tag, Server: i, Count: count})
		return
	}
	*v = v.with(i, r.Generation) // the Merge steps are the barrier
	var behind []int
	for j := range d.seen {
		if d.plan.Members[j] && d.seen[j].Vector.Equal(*v) {
			behind = append(behind, j)
		}
	}
	switch {
	case len(behind) < d.barrier:
	case r.Out == 0:
		d.present(Step{Kind: PutOut, Server: i, From: slices.Clone(behind)})
	case r.Now >= r.Out:
		d.present(Step{Kind: Join, Server: i})
	}
}

// loss says in words how the server lost its data.
func (r *Record) loss() string {
	switch {
	case r.Generation == 0:
		return "it is empty"
	case r.Durable && r.Loses:
		return "it does not write every change to disk any more before it answers"
	case !r.intact():
		return "it was restarted, and did not write every change to disk"
	case r.Out > r.Now:
		return "it has lost its data, and takes part again when all leases from before have ended"
	}
	return "it has lost its data, and is being prepared to take part again"
}
