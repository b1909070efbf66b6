// Package redislink carries the requests of the redlock engine to Redis servers: a [link.Link] for
// each, over the scripts of package script, with the membership of package membership.
//
// The order that safety needs: a party learns that a server was Lost before any of its requests
// carries a marker that states the server's new generation. So a promise that another server gives under
// the new marker is never counted together with promises of the lost life.
package redislink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/link"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/membership"
	"github.com/lockkeeper/lockkeeper/engine/redlock/internal/redisconn"
)

// maxRounds bounds the steps of one advance. Three servers that lost their data one after another need
// fewer.
const maxRounds = 20

// A Group is the servers of one set, as one process uses them.
type Group struct {
	prefix  string
	conns   []redisconn.Server
	servers *membership.Servers
	links   []*redisLink

	turn chan struct{} // filled by the advance that others wait for

	// advancing is held while records that were observed are judged and changed. It guards what follows.
	// state is of the observation that began latest.
	advancing sync.Mutex
	state     state
	facts     []redisconn.Facts // by server; of the process RunID
	forgetful []bool            // by server: this process brought it back, and its old data is to be removed

	existing bool          // make no set
	failed   chan struct{} // closed when err is permanent

	mu        sync.Mutex
	vector    membership.Vector // the set as requests state it
	err       error             // why the set can't be used; nil if it can
	permanent bool              // failed is closed
}

// state is the outcome of an advance.
type state struct {
	began time.Time // the observation
	plan  membership.Plan
	seen  []membership.Record
}

// New returns the group of servers, in the order of the set. prefix begins the names of all keys and
// channels.
func New(conns []redisconn.Server, prefix string) *Group {
	g := &Group{prefix: prefix, conns: conns, facts: make([]redisconn.Facts, len(conns)),
		forgetful: make([]bool, len(conns)), failed: make(chan struct{}), turn: make(chan struct{}, 1)}
	all := make([]membership.Conn, len(conns))
	for i, c := range conns {
		all[i] = c
		g.links = append(g.links, &redisLink{group: g, index: i, conn: c, kick: make(chan struct{}, 1)})
	}
	g.servers = membership.NewServers(prefix, all)
	return g
}

// Links returns a link for each server.
func (g *Group) Links() []link.Link {
	links := make([]link.Link, len(g.links))
	for i, l := range g.links {
		links[i] = l
	}
	return links
}

// Close closes the connections. It is called after every Watch has returned.
func (g *Group) Close() error {
	var errs []error
	for _, c := range g.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Err returns why the set as a whole can't be used, as far as it is known: it matches the errors of
// package membership, or redisconn.ErrUnfit. nil if it can.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// current returns the vector that requests state.
func (g *Group) current() membership.Vector {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.vector
}

// raise makes v the vector of requests, merged with the one before. First it tells the links of all
// servers whose generation changed that their data is lost.
func (g *Group) raise(v membership.Vector) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.vector
	if old.Set == v.Set {
		v = old.Merge(v)
	}
	for i, l := range g.links {
		if old.Set != "" && (old.Set != v.Set || old.Generations[i] != v.Generations[i]) {
			l.lose(fmt.Errorf("%w: it has a new generation", link.ErrLost))
		}
	}
	g.vector = v
}

// turnPatience is how long an advance waits for another one, whose outcome serves both. One that takes
// longer waits for servers that don't answer.
const turnPatience = 200 * time.Millisecond

// advance observes all servers, and does what is to be done until nothing is. It returns the state
// as of a moment after its call.
func (g *Group) advance(ctx context.Context) state {
	called := time.Now()
	defer g.takeTurn(ctx)()
	g.advancing.Lock()
	s := g.state
	g.advancing.Unlock()
	again := !s.began.After(called)
	for round := 0; again && round < maxRounds; round++ {
		began := time.Now()
		seen := g.servers.Observe(ctx)
		s, again = g.proceed(ctx, began, seen)
	}
	return s
}

// takeTurn waits until no other advance is under way, for turnPatience at most. It returns the function
// that ends the turn.
func (g *Group) takeTurn(ctx context.Context) (end func()) {
	timer := time.NewTimer(turnPatience)
	defer timer.Stop()
	select {
	case g.turn <- struct{}{}:
		return func() { <-g.turn }
	case <-timer.C:
	case <-ctx.Done():
	}
	return func() {}
}

// proceed does what the observation seen, which began at began, calls for, unless a later one has arrived. It
// reports whether a record may have changed.
func (g *Group) proceed(ctx context.Context, began time.Time, seen []membership.Record) (s state, again bool) {
	g.advancing.Lock()
	defer g.advancing.Unlock()
	if g.state.began.After(began) {
		return g.state, false
	}
	g.state = state{began: began, seen: seen}
	g.learn(ctx)
	g.state.plan = g.decide()
	g.setErr(g.state.plan.Err)
	if slices.Contains(g.state.plan.Members, true) {
		g.raise(g.state.plan.Vector)
	}
	again = len(g.state.plan.Steps) > 0 && ctx.Err() == nil && g.apply(ctx)
	s = g.state
	if ctx.Err() != nil {
		g.state.began = time.Time{} // it is no answer for other callers
	}
	return s, again
}

// learn inspects servers whose process is not known yet. A server that can't keep locks, or does not
// answer when the others have, counts as silent: no other server waits for it.
func (g *Group) learn(ctx context.Context) {
	seen, known := g.state.seen, 0
	ask := make([]bool, len(seen))
	for i := range seen {
		if seen[i].Answered && g.facts[i].RunID == seen[i].RunID {
			known++
		} else {
			ask[i] = seen[i].Answered
		}
	}
	facts, errs := g.inspect(ctx, ask, known)
	for i := range seen {
		r := &seen[i]
		if !r.Answered {
			continue
		}
		if ask[i] && errs[i] != nil {
			*r = membership.Record{Why: errs[i]}
			continue
		}
		if ask[i] {
			g.facts[i] = facts[i]
		}
		r.Loses = g.facts[i].Loses()
		if err := g.facts[i].Refusal(); err != nil {
			*r = membership.Record{Why: err}
		}
	}
}

// decide returns the plan for the servers as observed, with what the records lack.
func (g *Group) decide() membership.Plan {
	seen := g.state.seen
	for i := range seen {
		for j := range i {
			if seen[i].Answered && seen[j].Answered && seen[i].RunID == seen[j].RunID {
				return membership.Plan{Members: make([]bool, len(seen)), Lost: make([]string, len(seen)),
					Err: fmt.Errorf("%w: %s and %s are the same server: name each one once",
						redisconn.ErrUnfit, g.conns[j].Address(), g.conns[i].Address())}
			}
		}
	}
	plan := membership.Decide(g.servers.Names(), seen, g.current())
	if g.existing && plan.Err == nil && !slices.Contains(plan.Members, true) {
		plan.Steps, plan.Err = nil, ErrNoSet
	}
	if plan.Err != nil {
		for i := range seen {
			if why := g.denied(seen[i].Why); errors.Is(why, redisconn.ErrUnfit) || errors.Is(why, ErrDenied) {
				plan.Err = fmt.Errorf("%s: %w", g.conns[i].Address(), why)
			}
		}
	}
	for i := range seen {
		// The record states that the server keeps its data over a restart, as soon as it does.
		if r := &seen[i]; plan.Members[i] && r.Recorded == r.RunID && !r.Durable && g.durable(i) {
			plan.Steps = append(plan.Steps, membership.Step{Kind: membership.Relabel, Server: i})
		}
	}
	return plan
}

func (g *Group) durable(i int) bool { return g.facts[i].Durable() }

// apply makes the steps of the plan. It reports whether a record may have changed.
func (g *Group) apply(ctx context.Context) bool {
	changed := make([]bool, len(g.state.plan.Steps))
	var applying sync.WaitGroup
	for k, step := range g.state.plan.Steps {
		applying.Go(func() {
			_, err := g.servers.Apply(ctx, g.state.plan, g.state.seen, step, g.durable)
			changed[k] = err == nil // if it was not made, another party made it
		})
	}
	applying.Wait()
	for k, step := range g.state.plan.Steps {
		if step.Kind == membership.Join && changed[k] {
			g.forgetful[step.Server] = true
		}
	}
	return slices.Contains(changed, true)
}
