// Package crowd keeps clients of engines busy for tests, records what they see,
// and has it judged by package history. It knows nothing of the engine but the
// interface: what makes the engine's life hard is the test's business.
package crowd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
)

// Paths are what the clients ask for: a few, of which some are below others, so
// that there are always others who want the same.
var Paths = []lockkeeper.Path{"db", "db/1", "db/2", "site", "site/a", "snmp"}

// Crowd is clients that ask for locks at random, use them and give them back,
// until they are to rest. Its methods are for one goroutine.
type Crowd struct {
	rules history.Rules
	seed  uint64

	mu       sync.Mutex // guards what follows
	recorder *history.Recorder
	asking   map[string]bool // claims that were asked for, and not answered yet
	live     map[*hold]struct{}
	clients  []*client
	fence    uint64 // the highest that was seen in histories which are done with
	odd      []string

	works   context.Context // ends when all are to rest
	rest    context.CancelFunc
	running sync.WaitGroup

	// Long is for how long one in twenty holds lasts at most; others last some
	// milliseconds. To be set before the first Join.
	Long time.Duration

	// Granted, Refused, Unknown and Lost are how many requests came to that.
	Granted, Refused, Unknown, Lost atomic.Int64
}

// client is one client with its workers.
type client struct {
	*lockkeeper.Client
	name    string
	workers []*worker
}

// New makes a crowd without clients. rules are those of the engine; nothing is
// taken by force here, so Forced is not needed.
func New(seed uint64, rules history.Rules) *Crowd {
	c := &Crowd{
		seed:     seed,
		rules:    rules,
		recorder: history.NewRecorder(nil, nil),
		asking:   make(map[string]bool),
		live:     make(map[*hold]struct{}),
	}
	c.works, c.rest = context.WithCancel(context.Background())
	return c
}

// Join adds a client with that many workers, which begin at once. Disperse closes
// the client, and with it e.
func (c *Crowd) Join(name string, e lockkeeper.Engine, workers int, options ...lockkeeper.ClientOption) {
	name = fmt.Sprintf("%s%d", name, len(c.clients))
	options = append([]lockkeeper.ClientOption{lockkeeper.SessionLabel(lockkeeper.Label{As: name})}, options...)
	k := &client{Client: lockkeeper.New(&listener{e, c}, options...), name: name}
	for range workers {
		n := len(c.clients)*1000 + len(k.workers)
		k.workers = append(k.workers, &worker{
			crowd:  c,
			client: k,
			name:   fmt.Sprintf("%s.%d", name, len(k.workers)),
			random: rand.New(rand.NewPCG(c.seed, uint64(n))),
		})
	}
	c.clients = append(c.clients, k)
	c.begin(k)
}

func (c *Crowd) begin(k *client) {
	works := c.works
	for _, w := range k.workers {
		c.running.Go(func() {
			for works.Err() == nil {
				w.one(works)
			}
		})
	}
}

// Rest has all workers finish what they are doing, and returns when they have.
// The clients keep their sessions.
func (c *Crowd) Rest() {
	c.rest()
	c.running.Wait()
}

// Work has all workers go on after a rest.
func (c *Crowd) Work() {
	c.works, c.rest = context.WithCancel(context.Background())
	for _, k := range c.clients {
		c.begin(k)
	}
}

// Verdict says what was wrong since the last one, a line for each fault; nothing
// if all is well. The crowd must rest. It forgets what it has judged, but for the
// highest fence.
func (c *Crowd) Verdict() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := c.recorder.Events()
	wrong := append(history.Judge(events, c.rules), c.odd...)
	last := c.fence
	for _, e := range events {
		if e.Kind != history.Granted {
			continue
		}
		if e.Fence <= last {
			wrong = append(wrong, fmt.Sprintf("fences: %s was granted with fence %d, after fence %d of a former history",
				e.Claim, e.Fence, last))
		}
		c.fence = max(c.fence, e.Fence)
	}
	if n := len(c.live); n > 0 {
		wrong = append(wrong, fmt.Sprintf("%d holds were neither given back nor lost", n))
	}
	c.recorder, c.odd = history.NewRecorder(nil, nil), nil
	return wrong
}

// Fence is the highest fence that was granted in histories that were judged.
func (c *Crowd) Fence() uint64 { return c.fence }

// Disperse closes all clients. The crowd must rest.
func (c *Crowd) Disperse() error {
	var all []error
	for _, k := range c.clients {
		all = append(all, k.Close())
	}
	return errors.Join(all...)
}

// Free returns when everything that the crowd asked for was had by somebody new,
// each path alone, or with an error after that time: then something is held that
// nobody knows of.
func Free(e lockkeeper.Engine, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	c := lockkeeper.New(e, lockkeeper.SessionTTL(10*time.Second), lockkeeper.SessionLabel(lockkeeper.Label{As: "last"}))
	defer c.Close()
	for _, path := range Paths {
		h, err := c.Lock(ctx, string(path))
		if err != nil {
			return fmt.Errorf("%s is not to be had within %s: %w", path, within, err)
		}
		if err := h.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Record adds an event of a client that is none of the crowd's, as of another process,
// to the history.
func (c *Crowd) Record(e history.Event) { c.record(e) }

func (c *Crowd) oddly(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.odd = append(c.odd, fmt.Sprintf(format, args...))
}

func (c *Crowd) record(e history.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Kind {
	case history.Ask:
		c.asking[e.Claim] = true
	case history.Refused, history.Unknown:
		delete(c.asking, e.Claim)
	case history.Waits, history.Cancel:
		if !c.asking[e.Claim] {
			return // it was answered meanwhile, and may have been judged
		}
	}
	c.recorder.Add(e)
}

func (c *Crowd) String() string {
	return fmt.Sprintf("%d granted, %d refused or given up, %d without an answer, %d lost", c.Granted.Load(),
		c.Refused.Load(), c.Unknown.Load(), c.Lost.Load())
}

// Save writes the present history to a file, to look at what Verdict found wrong.
func (c *Crowd) Save(file string) error {
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
