package crowd

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

// longest bounds every request, as a safety net.
const longest = 60 * time.Second

// recorded marks the notes of claims that are in the history.
const recorded = "recorded "

// worker is one goroutine of a client.
type worker struct {
	crowd  *Crowd
	client *client
	name   string
	random *rand.Rand
	asked  int
}

// hold is what a worker has.
type hold struct {
	*lockkeeper.Hold
	base history.Event
	end  sync.Once // who comes second waits until the end is recorded
}

// one asks for something, uses it and gives it back.
func (w *worker) one(works context.Context) {
	c := w.crowd
	w.asked++
	base := history.Event{Client: w.name, Claim: fmt.Sprintf("%s.%d", w.name, w.asked)}
	ask, requests := w.demand(base)
	ctx, giveUp := context.WithTimeout(context.Background(), longest)
	defer giveUp()
	c.record(ask)
	// A rest ends waits too, else workers could wait for those that rest.
	gaveUp := context.AfterFunc(works, func() { w.cancel(base, giveUp) })
	if w.random.IntN(6) == 0 {
		timer := time.AfterFunc(time.Duration(w.random.IntN(40))*time.Millisecond, func() { w.cancel(base, giveUp) })
		defer timer.Stop()
	}
	got, err := w.client.Acquire(ctx, requests...)
	gaveUp()
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
	case <-works.Done():
	}
	w.give(h)
}

// stay is for how long something is held.
func (w *worker) stay() time.Duration {
	if long := w.crowd.Long; long > 0 && w.random.IntN(20) == 0 {
		return time.Duration(w.random.Int64N(int64(long)))
	}
	return time.Duration(w.random.IntN(8)) * time.Millisecond
}

// cancel records that the wait is given up, and does so.
func (w *worker) cancel(base history.Event, giveUp func()) {
	base.Kind = history.Cancel
	w.crowd.record(base)
	giveUp()
}

// demand makes up what to ask for.
func (w *worker) demand(base history.Event) (history.Event, []lockkeeper.Request) {
	ask := base
	ask.Kind = history.Ask
	requests := []lockkeeper.Request{lockkeeper.WithAs(w.name), lockkeeper.WithNote(recorded + base.Claim)}
	number := 1 + w.random.IntN(5)/4
	for _, i := range w.random.Perm(len(Paths))[:number] {
		path := Paths[i]
		switch kind := w.random.IntN(10); {
		case kind < 3:
			ask.Targets = append(ask.Targets, lockkeeper.Target{Path: path, Mode: lockkeeper.ModeShared})
			requests = append(requests, lockkeeper.Shared(string(path)))
		case kind < 5:
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
	if ask.Priority = w.random.IntN(3); ask.Priority != 0 {
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
		w.crowd.Refused.Add(1)
	case errors.Is(err, lockkeeper.ErrUnavailable):
		base.Kind = history.Unknown
		w.crowd.Unknown.Add(1)
	default:
		w.crowd.oddly("errors: %s: %v", base.Claim, err)
	}
	if taken := errors.Is(err, lockkeeper.ErrNotAcquired); taken && errors.Is(err, lockkeeper.ErrUnavailable) {
		w.crowd.oddly("errors: %s: taken and unreachable in one: %v", base.Claim, err)
	}
	var e *lockkeeper.Error
	if errors.As(err, &e) {
		base.Reason = e.Reason
	}
	w.crowd.record(base)
}

func (w *worker) granted(base history.Event, got *lockkeeper.Hold) *hold {
	c := w.crowd
	c.Granted.Add(1)
	h := &hold{Hold: got, base: base}
	c.Look()
	e := base
	e.Kind, e.Fence, e.Grants, e.Unconfirmed = history.Granted, got.Fence(), got.Grants(), got.Unconfirmed()
	c.mu.Lock()
	c.recorder.Add(e)
	delete(c.asking, base.Claim)
	c.live[h] = struct{}{}
	c.mu.Unlock()
	return h
}

// give releases a hold.
func (w *worker) give(h *hold) {
	c := w.crowd
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
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	err := h.Release(ctx)
	switch {
	case err == nil:
		e := h.base
		e.Kind = history.Released
		c.record(e)
	case !errors.Is(err, lockkeeper.ErrUnavailable) && !errors.Is(err, lockkeeper.ErrLost):
		c.oddly("errors: %s is given back: %v", h.base.Claim, err)
	}
}

// Look has every holder look at its hold, as it would before it does anything,
// and records who knows of a loss.
func (c *Crowd) Look() {
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

// mayBeLost are the reasons for which a hold here may be lost: nobody takes or
// revokes anything, so the engine must not lose what it has answered.
var mayBeLost = map[lockkeeper.Reason]bool{
	lockkeeper.Unreachable: true,
	lockkeeper.Suspended:   true,
	lockkeeper.Expired:     true,
}

func (c *Crowd) lost(h *hold, err error) {
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
		if !mayBeLost[e.Reason] {
			c.oddly("lost: %s was answered, and is lost: %v", h.base.Claim, err)
		}
	})
}

// listener is an engine that has it recorded who was answered that he waits.
type listener struct {
	lockkeeper.Engine
	crowd *Crowd
}

// Claim implements lockkeeper.Engine.
func (l *listener) Claim(ctx context.Context, k lockkeeper.Key, want lockkeeper.Want) (lockkeeper.Status, error) {
	s, err := l.Engine.Claim(ctx, k, want)
	if claim, ok := strings.CutPrefix(want.Note, recorded); ok && err == nil && s.State == lockkeeper.Waiting &&
		want.Revision == 0 {
		l.crowd.record(history.Event{Kind: history.Waits, Client: want.As, Claim: claim})
	}
	return s, err
}
