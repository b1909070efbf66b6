package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/load"
)

// timing is how long a round goes on.
type timing struct {
	Warm  time.Duration `json:"warm"`  // not counted
	Run   time.Duration `json:"run"`   // counted
	Keep  time.Duration `json:"keep"`  // for how long a holder keeps it in hand-off
	Batch int           `json:"batch"` // paths in a batch
	Bench time.Duration `json:"bench"` // how long a Go benchmark goes on
}

// comeBack is how long workers may take to end after a round.
const comeBack = 20 * time.Second

// sample is what one round of one peer came to.
type sample struct {
	Pairs     int64         `json:"pairs"` // acquired and released
	Elapsed   time.Duration `json:"elapsed"`
	ClientCPU time.Duration `json:"client_cpu"`
	ServerCPU time.Duration `json:"server_cpu,omitempty"`
	OtherCPU  time.Duration `json:"other_cpu"`      // of all other processes, to 10 ms
	Jain      float64       `json:"jain,omitempty"` // 1: all clients got the same; 1/clients: one got all
	Handoffs  int           `json:"handoffs,omitempty"`
	P50       time.Duration `json:"p50,omitempty"` // from the release's beginning until the next one has it
	P99       time.Duration `json:"p99,omitempty"`
}

// longestRun is by how much a round of a slow peer is longer at most.
const longestRun = 10

// measureEnough runs one round of the workload; where clients queue for one path, a second and longer
// one if the first had too few turns to tell how even they are. Then the second one counts.
func measureEnough(ctx context.Context, w workload, p peer, t timing) (sample, error) {
	s, err := measure(ctx, w, p, t)
	enough := evenTurns(w.Clients)
	if err != nil || w.Kind != contended && w.Kind != handoff || s.Pairs >= enough {
		return s, err
	}
	t.Run *= time.Duration(min(longestRun, 3*enough/(2*max(s.Pairs, 1))+1))
	return measure(ctx, w, p, t)
}

// evenTurns is how many turns tell how even they are: with fewer, some clients must have more of them
// than others.
func evenTurns(clients int) int64 { return int64(5 * clients) }

// measure runs one round of the workload.
func measure(ctx context.Context, w workload, p peer, t timing) (sample, error) {
	runtime.GC() // garbage of the round before must not burden this one
	opened, err := p.open(ctx, w.Clients)
	if err != nil {
		return sample{}, err
	}
	closed := sync.OnceFunc(opened.close)
	defer closed()
	bound, cancel := context.WithTimeout(ctx, t.Warm+t.Run+comeBack)
	defer cancel()
	defer context.AfterFunc(bound, closed)() // a call that hangs ends with its connection
	l := load.New(w.Clients)
	l.Warm, l.Span, l.Grace = t.Warm, t.Run, comeBack
	l.Work = workOf(w.Kind, t, opened, p.server() == nil)
	var looks []look
	l.Edge = func() error {
		now, err := lookAt(p.server())
		looks = append(looks, now)
		return err
	}
	r, err := l.Run(bound)
	if err != nil {
		return sample{}, err
	}
	s := sample{
		Pairs:     r.Total(),
		Elapsed:   r.Elapsed,
		ClientCPU: looks[1].client - looks[0].client,
		ServerCPU: looks[1].server - looks[0].server,
		Handoffs:  int(r.Took.Count()),
		P50:       r.Took.Quantile(0.5),
		P99:       r.Took.Quantile(0.99),
	}
	s.OtherCPU = max(looks[1].all-looks[0].all-s.ClientCPU-s.ServerCPU, 0)
	if w.Kind == contended || w.Kind == handoff {
		s.Jain = r.Fairness()
	}
	return s, nil
}

// workOf returns what each worker does. Only contended paths are timed. Holders of a peer without a
// server yield.
func workOf(k kind, t timing, opened clients, inProcess bool) func(*load.Worker) error {
	switch k {
	case distinct:
		return func(w *load.Worker) error { return w.Turns(opened.locker(w.Number), pathsOf(w.Number, ownPaths)...) }
	case batches:
		return func(w *load.Worker) error { return workBatches(w, opened.locker(w.Number), t.Batch) }
	}
	keep := time.Duration(0)
	if k == handoff {
		keep = t.Keep
	}
	// The path is of this round alone: a worker that gives up may leave it locked.
	c := load.NewContended(hotPath(), keep)
	c.Yield = inProcess
	return func(w *load.Worker) error { return c.Turns(w, opened.locker(w.Number)) }
}

func workBatches(w *load.Worker, l load.Locker, size int) error {
	paths := pathsOf(w.Number, size)
	b, ok := l.(batcher)
	if !ok {
		return errors.New("this peer does no batches, though it says so")
	}
	for !w.Over() {
		if err := b.batch(w.Bound(), paths); err != nil {
			return fmt.Errorf("batch: %w", err)
		}
		w.Done(len(paths))
	}
	return nil
}

// look is the processor time used until now.
type look struct{ client, server, all time.Duration }

func lookAt(server *process) (l look, err error) {
	if l.client, err = ownCPU(); err == nil && server != nil {
		l.server, err = server.cpu()
	}
	if err == nil {
		l.all, err = busy()
	}
	return l, err
}
