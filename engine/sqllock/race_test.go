package sqllock

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
)

// race runs transactions at once, statement by statement, in an order that choose
// decides. A statement that has to wait for a latch or for a row waits.
type race struct {
	rows    *memory
	racers  []*racer
	current *racer
	choose  func(n int) int // one of n that can go on
	turns   []string        // before which statements others may have their turn
	told    []string        // the statements in their order
}

// racer is one transaction on its way.
type racer struct {
	name string
	next func() (statement, bool)
	stop func()
	give func(statement) bool
	l    *memoryLink
	at   statement // its next statement
	done bool
}

// add adds a racer whose transactions run does.
func (r *race) add(name string, run func()) {
	one := &racer{name: name}
	one.next, one.stop = iter.Pull(func(yield func(statement) bool) {
		one.give = yield
		run()
	})
	r.racers = append(r.racers, one)
}

// run runs all racers until they are done. It returns an error if none can go on.
func (r *race) run() error {
	r.rows.turn = func(l *memoryLink, s statement) error {
		if !slices.Contains(r.turns, s.text) {
			return nil
		}
		r.current.l = l
		r.current.give(s)
		return nil
	}
	defer func() { r.rows.turn = nil }()
	for _, one := range r.racers {
		r.resume(one)
	}
	for {
		var ready []*racer
		left := 0
		for _, one := range r.racers {
			if !one.done {
				left++
				if r.free(one) {
					ready = append(ready, one)
				}
			}
		}
		switch {
		case left == 0:
			return nil
		case len(ready) == 0:
			return fmt.Errorf("nobody can go on:\n%s", strings.Join(r.told, "\n"))
		}
		one := ready[r.choose(len(ready))]
		r.told = append(r.told, one.name+" "+one.at.text)
		r.resume(one)
	}
}

// allTurns are the statements before which another transaction may have its turn. The others
// commute with the statements of others: their writes are visible only after the commit.
var allTurns = []string{"latch", "clock", "sessions", "claims", "freezes", "hold", "commit"}

func (r *race) resume(one *racer) {
	r.current = one
	s, more := one.next()
	one.at, one.done = s, !more
}

// free reports whether the latch or row that a racer waits for is free.
func (r *race) free(one *racer) bool {
	switch args := one.at.args; one.at.text {
	case "latch":
		return !slices.ContainsFunc(args[1].([]latch), func(l latch) bool { return !r.rows.free(one.l, l) })
	case "hold", "sessions":
		return !args[1].(bool) || !slices.ContainsFunc(args[2].([]string), func(id string) bool {
			owner := r.rows.locks[id]
			return owner != nil && owner != one.l
		})
	}
	return true
}

// everyOrder calls run with each way to choose, until it reports an error.
func everyOrder(run func(choose func(n int) int) error) (orders int, err error) {
	var path, widths []int
	for {
		depth := 0
		err := run(func(n int) int {
			if depth == len(path) {
				path, widths = append(path, 0), append(widths, n)
			}
			depth++
			return path[depth-1]
		})
		orders++
		if err != nil {
			return orders, err
		}
		for len(path) > 0 && path[len(path)-1] == widths[len(path)-1]-1 {
			path, widths = path[:len(path)-1], widths[:len(widths)-1]
		}
		if len(path) == 0 {
			return orders, nil
		}
		path[len(path)-1]++
	}
}

// someOrders is everyOrder for some of them, always the same.
func someOrders(run func(choose func(n int) int) error) (orders int, err error) {
	for ; orders < 100 && err == nil; orders++ {
		err = run(rand.New(rand.NewPCG(uint64(orders), 0)).IntN)
	}
	return orders, err
}

// race has calls begin, each as a racer with a transaction of its own, and
// runs the race. The answers are in the calls.
func (w *world) race(calls []*played, turns []string, choose func(int) int) (*race, error) {
	r := &race{rows: w.rows, choose: choose, turns: turns}
	var wait sync.WaitGroup
	for i, p := range calls {
		q := p.e.work
		if p.renews {
			q = p.e.renewals
		}
		wait.Go(func() { p.err = p.call() })
		jobs := q.take()
		r.add(fmt.Sprint("transaction ", i+1), func() { w.persist(p.e, q, jobs) })
	}
	err := r.run()
	if err == nil {
		wait.Wait()
	}
	return r, err
}
