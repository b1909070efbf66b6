package stress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
)

// maxWait bounds every request.
const maxWait = 60 * time.Second

// recorded is the prefix of the notes of claims that are in the history.
const recorded = "recorded "

// worker is one goroutine of a client.
type worker struct {
	load   *Load
	client *client
	name   string
	random *rand.Rand
	asked  int
}

// hold is a hold of a worker.
type hold struct {
	*lockkeeper.Hold
	base history.Event
	end  sync.Once // a second caller waits until the end is recorded
}

// run makes requests until running ends, in the interval of the load.
func (w *worker) run(running context.Context) {
	interval := w.load.Interval
	if interval <= 0 {
		for running.Err() == nil {
			w.one(running)
		}
		return
	}
	turn := time.NewTimer(time.Duration(w.random.Int64N(int64(interval)))) // workers do not march in step
	defer turn.Stop()
	next := time.Now()
	for {
		select {
		case <-running.Done():
			return
		case <-turn.C:
		}
		w.one(running)
		now := time.Now()
		if next = next.Add(interval); next.Before(now) {
			next = now.Add(interval)
		}
		turn.Reset(next.Sub(now))
	}
}

// one makes one random request, uses the hold and releases it.
func (w *worker) one(running context.Context) {
	c := w.load
	w.asked++
	base := history.Event{Client: w.name, Claim: fmt.Sprintf("%s.%d", w.name, w.asked)}
	ask, requests := w.demand(base)
	ctx, cancelWait := context.WithTimeout(context.Background(), maxWait)
	defer cancelWait()
	c.record(ask)
	// Pause ends waits, too: otherwise a worker could wait for a paused one.
	stopWatching := context.AfterFunc(running, func() { w.cancel(base, cancelWait) })
	if w.random.IntN(6) == 0 {
		timer := time.AfterFunc(time.Duration(w.random.IntN(40))*time.Millisecond, func() { w.cancel(base, cancelWait) })
		defer timer.Stop()
	}
	got, err := w.client.Acquire(ctx, requests...)
	stopWatching()
	if err != nil {
		w.refused(base, err)
		return
	}
	h := w.granted(base, got)
	timer := time.NewTimer(w.stay())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.Done():
	case <-running.Done():
	}
	w.release(h)
}

// stay returns a random duration of a hold.
func (w *worker) stay() time.Duration {
	if long := w.load.Long; long > 0 && w.random.IntN(20) == 0 {
		return time.Duration(w.random.Int64N(int64(long)))
	}
	return time.Duration(w.random.IntN(8)) * time.Millisecond
}

// cancel records the end of the wait, and ends it.
func (w *worker) cancel(base history.Event, cancelWait func()) {
	base.Kind = history.Cancel
	w.load.record(base)
	cancelWait()
}

// demand returns a random request.
func (w *worker) demand(base history.Event) (history.Event, []lockkeeper.Request) {
	ask := base
	ask.Kind = history.Ask
	requests := []lockkeeper.Request{lockkeeper.WithAs(w.name), lockkeeper.WithNote(recorded + base.Claim)}
	number := 1
	if w.client.features&lockkeeper.FeatureManyTargets != 0 {
		number += w.random.IntN(5) / 4
	}
	paths := pathsFor(w.client.features)
	for _, i := range w.random.Perm(len(paths))[:number] {
		path := paths[i]
		switch kind := w.random.IntN(10); {
		case kind < 3 && w.client.features&lockkeeper.FeatureShared != 0:
			ask.Targets = append(ask.Targets, lockkeeper.Target{Path: path, Mode: lockkeeper.ModeShared})
			requests = append(requests, lockkeeper.Shared(string(path)))
		case kind >= 3 && kind < 5 && w.client.features&lockkeeper.FeaturePermits != 0:
			limit := 1 + w.random.IntN(4)
			units := 1 + w.random.IntN(limit)
			ask.Targets = append(ask.Targets, lockkeeper.Target{
				Path:  path,
				Mode:  lockkeeper.ModePermits,
				Units: units,
				Limit: limit,
			})
			requests = append(requests, lockkeeper.Permits(string(path), units, limit))
		default:
			ask.Targets = append(ask.Targets, lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive})
			requests = append(requests, lockkeeper.Exclusive(string(path)))
		}
	}
	if w.client.features&lockkeeper.FeaturePriority != 0 {
		ask.Priority = w.random.IntN(3)
	}
	if ask.Priority != 0 {
		requests = append(requests, lockkeeper.WithPriority(ask.Priority))
	}
	if ask.Try = w.random.IntN(6) == 0; ask.Try {
		requests = append(requests, lockkeeper.WithWait(0))
	}
	return ask, requests
}

func (w *worker) refused(base history.Event, err error) {
	base.Kind = history.Refused
	switch {
	case errors.Is(err, lockkeeper.ErrNotAcquired):
		w.load.Refused.Add(1)
	case errors.Is(err, lockkeeper.ErrUnavailable):
		base.Kind = history.Unknown
		w.load.Unknown.Add(1)
	default:
		w.load.fault("errors: %s: %v", base.Claim, err)
	}
	if taken := errors.Is(err, lockkeeper.ErrNotAcquired); taken && errors.Is(err, lockkeeper.ErrUnavailable) {
		w.load.fault("errors: %s: both not acquired and unavailable: %v", base.Claim, err)
	}
	var e *lockkeeper.Error
	if errors.As(err, &e) {
		base.Reason = e.Reason
	}
	w.load.record(base)
}

func (w *worker) granted(base history.Event, got *lockkeeper.Hold) *hold {
	c := w.load
	c.Granted.Add(1)
	h := &hold{Hold: got, base: base}
	c.CheckLosses()
	e := base
	e.Kind, e.Fence, e.Grants, e.Unconfirmed = history.Granted, got.Fence(), got.Grants(), got.Unconfirmed()
	c.mu.Lock()
	c.recorder.Add(e)
	delete(c.asking, base.Claim)
	c.live[h] = struct{}{}
	c.mu.Unlock()
	return h
}

// release releases a hold.
func (w *worker) release(h *hold) {
	c := w.load
	if err := h.Err(); err != nil {
		c.lost(h, err)
		return
	}
	h.end.Do(func() {
		e := h.base
		e.Kind = history.Release
		c.mu.Lock()
		c.recorder.Add(e)
		delete(c.live, h)
		c.mu.Unlock()
	})
	ctx, cancel := context.WithTimeout(context.Background(), maxWait)
	defer cancel()
	err := h.Release(ctx)
	switch {
	case err == nil:
		e := h.base
		e.Kind = history.Released
		c.record(e)
	case !errors.Is(err, lockkeeper.ErrUnavailable) && !errors.Is(err, lockkeeper.ErrLost):
		c.fault("errors: %s: release: %v", h.base.Claim, err)
	}
}

// CheckLosses calls Err on every hold, as a holder does before it acts, and records the losses.
func (c *Load) CheckLosses() {
	c.mu.Lock()
	all := make([]*hold, 0, len(c.live))
	for h := range c.live {
		all = append(all, h)
	}
	c.mu.Unlock()
	for _, h := range all {
		if err := h.Err(); errors.Is(err, lockkeeper.ErrLost) {
			c.lost(h, err)
		}
	}
}

// allowedLosses are the allowed reasons of a loss. No client steals or revokes, so the engine must not
// end a hold that it has granted for any other reason.
var allowedLosses = map[lockkeeper.Reason]bool{
	lockkeeper.Unreachable: true,
	lockkeeper.Suspended:   true,
	lockkeeper.QuorumLost:  true,
	lockkeeper.Expired:     true,
}

func (c *Load) lost(h *hold, err error) {
	h.end.Do(func() {
		c.Lost.Add(1)
		var e *lockkeeper.Error
		errors.As(err, &e)
		event := h.base
		event.Kind, event.Reason = history.Lost, e.Reason
		c.mu.Lock()
		c.recorder.Add(event)
		delete(c.live, h)
		c.mu.Unlock()
		if !allowedLosses[e.Reason] {
			c.fault("lost: %s was granted and is lost: %v", h.base.Claim, err)
		}
	})
}

// sendRecorder is an engine that records when it gets a claim, and when it answers that the claim
// waits. A client may send a claim more than once.
type sendRecorder struct {
	lockkeeper.Engine
	load *Load
}

// Claim implements lockkeeper.Engine.
func (l *sendRecorder) Claim(ctx context.Context, k lockkeeper.Key, want lockkeeper.Want) (lockkeeper.Status, error) {
	claim, ok := strings.CutPrefix(want.Note, recorded)
	if !ok || want.Revision != 0 {
		return l.Engine.Claim(ctx, k, want)
	}
	l.load.record(history.Event{Kind: history.Sent, Client: want.As, Claim: claim})
	s, err := l.Engine.Claim(ctx, k, want)
	if err == nil && s.State == lockkeeper.Waiting {
		l.load.record(history.Event{Kind: history.Waits, Client: want.As, Claim: claim})
	}
	return s, err
}
