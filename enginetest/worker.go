package enginetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
)

// worker uses a client from one goroutine and records every operation.
type worker struct {
	*world
	client *lockkeeper.Client
	link   *link
	name   string
	asked  int
}

func (w *world) worker(name string, change func(*link), options ...lockkeeper.ClientOption) *worker {
	w.Helper()
	name = w.name(name)
	c, l := w.clientAndLink(name, change, options...)
	return &worker{world: w, client: c, link: l, name: name}
}

// sameClient returns another worker on the same client.
func (k *worker) sameClient() *worker {
	return &worker{world: k.world, client: k.client, link: k.link, name: k.world.name(k.name)}
}

// demand is a request of a worker.
type demand struct {
	targets  []lockkeeper.Target
	priority int
	soft     bool
	try      bool
	more     []lockkeeper.Request
}

// requests returns the options of d for the client. The note has the claim's name in the history,
// so that the link recognizes the claim.
func (d *demand) requests(client, claim string) []lockkeeper.Request {
	requests := []lockkeeper.Request{lockkeeper.WithAs(client), lockkeeper.WithNote(recorded + claim)}
	for _, t := range d.targets {
		switch t.Mode {
		case lockkeeper.ModeExclusive:
			requests = append(requests, lockkeeper.Exclusive(string(t.Path)))
		case lockkeeper.ModeShared:
			requests = append(requests, lockkeeper.Shared(string(t.Path)))
		default:
			requests = append(requests, lockkeeper.Permits(string(t.Path), t.Units, t.Limit))
		}
	}
	if d.priority != 0 {
		requests = append(requests, lockkeeper.WithPriority(d.priority))
	}
	if d.soft {
		requests = append(requests, lockkeeper.WithSoft(0))
	}
	if d.try {
		requests = append(requests, lockkeeper.WithWait(0))
	}
	return append(requests, d.more...)
}

// held is a hold of a worker.
type held struct {
	*lockkeeper.Hold
	of    *worker
	claim string
	end   sync.Once // records its end; a second caller waits until that is done
}

// acquire requests d and waits. If cancel is not nil, acquire calls it with the function that ends
// the wait.
func (k *worker) acquire(ctx context.Context, d demand, cancel func(giveUp func())) (*held, error) {
	k.asked++
	claim := fmt.Sprintf("%s.%d", k.name, k.asked)
	base := history.Event{Client: k.name, Claim: claim}
	ctx, end := context.WithCancel(ctx)
	defer end()
	ask := base
	ask.Kind, ask.Targets, ask.Priority, ask.Soft, ask.Try = history.Ask, d.targets, d.priority, d.soft, d.try
	k.recorder.Add(ask)
	if cancel != nil {
		cancel(func() {
			k.record(base, history.Cancel)
			end()
		})
	}
	h, err := k.client.Acquire(ctx, d.requests(k.name, claim)...)
	if err != nil {
		answer := base
		answer.Kind = history.Refused
		if errors.Is(err, lockkeeper.ErrUnavailable) {
			answer.Kind = history.Unknown
		}
		var e *lockkeeper.Error
		if errors.As(err, &e) {
			answer.Reason = e.Reason
		}
		k.recorder.Add(answer)
		return nil, err
	}
	mine := &held{Hold: h, of: k, claim: claim}
	k.checkLosses()
	grant := base
	grant.Kind, grant.Fence, grant.Grants, grant.Unconfirmed = history.Granted, h.Fence(), h.Grants(), h.Unconfirmed()
	k.mu.Lock()
	k.recorder.Add(grant)
	k.live[mine] = struct{}{}
	k.mu.Unlock()
	return mine, nil
}

func (k *worker) record(base history.Event, kind history.Kind) {
	base.Kind = kind
	k.recorder.Add(base)
}

// checkLosses calls Err on every hold, as a holder does before it acts, and records the losses.
func (w *world) checkLosses() {
	w.mu.Lock()
	all := make([]*held, 0, len(w.live))
	for h := range w.live {
		all = append(all, h)
	}
	w.mu.Unlock()
	for _, h := range all {
		if err := h.Err(); errors.Is(err, lockkeeper.ErrLost) {
			h.lost(err)
		}
	}
}

// lost records that the holder knows of its loss.
func (h *held) lost(err error) {
	h.end.Do(func() {
		var e *lockkeeper.Error
		errors.As(err, &e)
		h.of.recorder.Add(history.Event{Kind: history.Lost, Client: h.of.name, Claim: h.claim, Reason: e.Reason})
		h.forget()
	})
}

func (h *held) forget() {
	h.of.mu.Lock()
	delete(h.of.live, h)
	h.of.mu.Unlock()
}

// giveBack releases the hold.
func (h *held) giveBack(ctx context.Context) error {
	if err := h.Err(); errors.Is(err, lockkeeper.ErrLost) {
		h.lost(err)
		return err
	}
	base := history.Event{Client: h.of.name, Claim: h.claim}
	h.end.Do(func() {
		h.of.record(base, history.Release)
		h.forget()
	})
	err := h.Release(ctx)
	if err == nil {
		h.of.record(base, history.Released)
	}
	return err
}

// convert upgrades or downgrades the hold, whose targets all have the same mode.
func (h *held) convert(ctx context.Context, to lockkeeper.Mode) error {
	event := history.Event{Kind: history.Convert, Client: h.of.name, Claim: h.claim}
	for _, g := range h.Grants() {
		event.Targets = append(event.Targets, lockkeeper.Target{Path: g.Path, Mode: to})
	}
	h.of.recorder.Add(event)
	change := h.Downgrade
	if to == lockkeeper.ModeExclusive {
		change = func(ctx context.Context) error { return h.Upgrade(ctx) }
	}
	err := change(ctx)
	h.of.checkLosses()
	event.Kind, event.Targets = history.Unconverted, nil
	if err == nil && h.Err() == nil {
		event.Kind, event.Fence, event.Grants, event.Unconfirmed = history.Converted, h.Fence(), h.Grants(), h.Unconfirmed()
	}
	h.of.recorder.Add(event)
	return err
}

// increment increments the counter that the path guards, with a load and a store: without mutual
// exclusion another holder could run in between.
func (h *held) increment(path lockkeeper.Path) {
	w := h.of.world
	w.mu.Lock()
	n := w.counts[path]
	if n == nil {
		n = new(int64)
		w.counts[path] = n
	}
	w.mu.Unlock()
	base := history.Event{Client: h.of.name, Claim: h.claim, Path: path}
	h.of.record(base, history.Count)
	value := atomic.LoadInt64(n)
	runtime.Gosched()
	atomic.StoreInt64(n, value+1)
	base.Kind, base.Value = history.Counted, value+1
	h.of.recorder.Add(base)
}
