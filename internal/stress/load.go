// Package stress runs clients with random requests against engines, for tests that kill servers,
// restart databases and break networks. It records what the clients observe, and package history
// judges the record. The test injects the faults:
//
//	load := stress.New(seed, history.RulesOf(engine.Guarantees()))
//	load.Add("client", engine, 2) // its workers begin at once
//	…                                // faults
//	load.Pause()
//	for _, fault := range load.Faults() {
//		t.Error(fault)
//	}
//	load.Resume()                    // or CheckFree and Close
//
// The random load of package enginetest differs: it runs once, in a bubble if the engine allows it,
// and uses every feature. This one pauses and resumes, judges in parts so that hours fit in memory,
// and takes events of other processes.
package stress

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
)

// Paths are the paths that the clients request: a few, some of them below others, so that requests
// conflict. On an engine without a hierarchy they are Trees.
var (
	Paths = []lockkeeper.Path{"db", "db/1", "db/2", "site", "site/a", "snmp"}
	Trees = []lockkeeper.Path{"db", "site", "snmp"}
)

// pathsFor returns the paths that clients of an engine with these features request.
func pathsFor(f lockkeeper.Features) []lockkeeper.Path {
	if f&lockkeeper.FeatureHierarchy == 0 {
		return Trees
	}
	return Paths
}

// Load is a set of clients whose workers request locks at random, use them and release them. Its
// methods are for one goroutine.
type Load struct {
	rules history.Rules
	seed  uint64

	mu       sync.Mutex // guards the fields up to faults
	recorder *history.Recorder
	asking   map[string]bool // claims without an answer yet
	live     map[*hold]struct{}
	clients  []*client
	fence    uint64                     // the highest fence in the judged histories
	fences   map[lockkeeper.Path]uint64 // by path, for engines whose fences rise on each path by itself
	faults   []string

	running context.Context // ends with Pause
	pause   context.CancelFunc
	workers sync.WaitGroup

	// Clock is the clock of the histories, which processes have in common whose histories are judged as
	// one. Set it before the first Add; nil is a clock that begins with each history.
	Clock func() time.Duration

	// Long bounds the duration of one hold in twenty; the others last some milliseconds. Set it before
	// the first Add.
	Long time.Duration

	// Interval is the time from one request of a worker to its next one; 0 means that the next one follows at
	// once. A worker that is late leaves requests out. Set it before the first Add.
	Interval time.Duration

	// Granted, Refused, Unknown and Lost count the outcomes of requests.
	Granted, Refused, Unknown, Lost atomic.Int64
}

// client is one client with its workers.
type client struct {
	*lockkeeper.Client
	name     string
	features lockkeeper.Features // requests need no others
	workers  []*worker
}

// New makes a load without clients, with the rules of the engine. No client steals or revokes, so the
// rule Forced is not needed.
func New(seed uint64, rules history.Rules) *Load {
	c := &Load{
		seed:     seed,
		rules:    rules,
		recorder: history.NewRecorder(nil, nil),
		asking:   make(map[string]bool),
		live:     make(map[*hold]struct{}),
		fences:   make(map[lockkeeper.Path]uint64),
	}
	c.running, c.pause = context.WithCancel(context.Background())
	return c
}

// Add adds a client with a number of workers, which begin at once. Close closes the client and e.
func (c *Load) Add(name string, e lockkeeper.Engine, workers int, options ...lockkeeper.ClientOption) {
	if len(c.clients) == 0 && c.Clock != nil {
		c.recorder = history.NewRecorder(c.Clock, nil)
	}
	name = fmt.Sprintf("%s%d", name, len(c.clients))
	options = append([]lockkeeper.ClientOption{lockkeeper.SessionLabel(lockkeeper.Label{As: name})}, options...)
	k := &client{
		Client:   lockkeeper.New(&sendRecorder{e, c}, options...),
		name:     name,
		features: e.Guarantees().Features,
	}
	for range workers {
		n := len(c.clients)*1000 + len(k.workers)
		k.workers = append(k.workers, &worker{
			load:   c,
			client: k,
			name:   fmt.Sprintf("%s.%d", name, len(k.workers)),
			random: rand.New(rand.NewPCG(c.seed, uint64(n))),
		})
	}
	c.clients = append(c.clients, k)
	c.begin(k)
}

func (c *Load) begin(k *client) {
	running := c.running
	for _, w := range k.workers {
		c.workers.Go(func() { w.run(running) })
	}
}

// Pause ends all waits, and returns when every worker has released its hold. The clients keep their
// sessions.
func (c *Load) Pause() {
	c.pause()
	c.workers.Wait()
}

// Resume starts all workers again after Pause.
func (c *Load) Resume() {
	c.running, c.pause = context.WithCancel(context.Background())
	for _, k := range c.clients {
		c.begin(k)
	}
}

// Faults returns a line for each fault since its last call. The load must be paused. It then drops the
// judged history, except for the highest fence.
func (c *Load) Faults() []string {
	events, wrong := c.Take()
	return append(c.Judge(events), wrong...)
}

// Take returns the history since its last call, for another Load to judge, and what else went wrong
// meanwhile. The load must be paused.
func (c *Load) Take() (events []history.Event, wrong []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	events, wrong = c.recorder.Events(), c.faults
	for h := range c.live {
		wrong = append(wrong, fmt.Sprintf("holds: %s (fence %d) was neither released nor lost", h.base.Claim, h.Fence()))
	}
	c.recorder, c.faults = history.NewRecorder(c.Clock, nil), nil
	return events, wrong
}

// Judge returns a line for each fault of a history that follows those judged before.
func (c *Load) Judge(events []history.Event) []string {
	return append(history.Judge(events, c.rules), c.judgeFences(events)...)
}

// judgeFences compares the fences of a history with those of the histories before it.
func (c *Load) judgeFences(events []history.Event) (wrong []string) {
	if !c.rules.Fences {
		return nil
	}
	highest, paths := c.fence, maps.Clone(c.fences)
	for _, e := range events {
		if e.Kind != history.Granted {
			continue
		}
		before := highest
		if c.rules.PathFences {
			before = 0
			for _, g := range e.Grants {
				before = max(before, paths[g.Path])
				c.fences[g.Path] = max(c.fences[g.Path], e.Fence)
			}
		}
		if e.Fence <= before {
			wrong = append(wrong, fmt.Sprintf("fences: %s was granted at %s with fence %d, after fence %d of an earlier "+
				"history", e.Claim, e.At, e.Fence, before))
		}
		c.fence = max(c.fence, e.Fence)
	}
	return wrong
}

// Fence returns the highest fence in the judged histories.
func (c *Load) Fence() uint64 { return c.fence }

// Close closes all clients. The load must be paused.
func (c *Load) Close() error {
	var all []error
	for _, k := range c.clients {
		all = append(all, k.Close())
	}
	return errors.Join(all...)
}

// CheckFree acquires each of the Paths (or Trees) with a new client, one after the other. An error after that
// time means that a claim is held without a holder.
func CheckFree(e lockkeeper.Engine, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	c := lockkeeper.New(e, lockkeeper.SessionTTL(10*time.Second), lockkeeper.SessionLabel(lockkeeper.Label{As: "last"}))
	defer c.Close()
	for _, path := range pathsFor(e.Guarantees().Features) {
		h, err := c.Lock(ctx, string(path))
		if err != nil {
			return fmt.Errorf("%s is not free within %s: %w", path, within, err)
		}
		if err := h.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Record adds an event of another client to the history, for example of another process.
func (c *Load) Record(e history.Event) { c.record(e) }

func (c *Load) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

func (c *Load) record(e history.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Kind {
	case history.Ask:
		c.asking[e.Claim] = true
	case history.Refused, history.Unknown:
		delete(c.asking, e.Claim)
	case history.Sent, history.Waits, history.Cancel:
		if !c.asking[e.Claim] {
			return // it was answered meanwhile, and its history may have been judged
		}
	}
	c.recorder.Add(e)
}

func (c *Load) String() string {
	return fmt.Sprintf("%d granted, %d refused or cancelled, %d without an answer, %d lost", c.Granted.Load(),
		c.Refused.Load(), c.Unknown.Load(), c.Lost.Load())
}

// Save writes the current history to a file, for the analysis of its faults.
func (c *Load) Save(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	again := history.NewRecorder(nil, f)
	for _, e := range c.recorder.Events() {
		again.Add(e)
	}
	return again.Err()
}
