package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// relay measures hand-offs: some take turns on one path, and whoever holds it
// releases only when somebody is known to be in line.
type relay struct {
	path   string
	began  time.Time
	freed  atomic.Int64  // when the latest release was called, since began
	inLine atomic.Int32  // how many are known to wait
	joined chan struct{} // has a token when somebody may have joined the line
}

func newRelay(path string) *relay {
	return &relay{path: path, began: time.Now(), joined: make(chan struct{}, 1)}
}

// run is the work of one of them.
func (r *relay) run(ctx context.Context, client *lockkeeper.Client, t *tally) error {
	for time.Now().Before(t.to) {
		if err := r.turn(ctx, client, t); err != nil {
			return err
		}
	}
	return nil
}

// turn waits in line, holds until somebody else is in line, and hands off.
func (r *relay) turn(ctx context.Context, client *lockkeeper.Client, t *tally) error {
	pending, err := client.Enqueue(ctx, lockkeeper.Exclusive(r.path))
	if err != nil {
		return err
	}
	waits, err := r.join(ctx, pending)
	if err != nil {
		pending.Cancel()
		return err
	}
	since := time.Since(r.began)
	hold, err := pending.Wait(ctx)
	had := time.Now()
	if waits {
		r.inLine.Add(-1)
	}
	if err != nil {
		pending.Cancel()
		return err
	}
	// Who was still on the way to the line when it was freed has not waited there.
	if freed := time.Duration(r.freed.Load()); waits && freed > since {
		t.count(had.Sub(r.began)-freed, had)
	}
	r.awaitNext(ctx, t.window)
	r.freed.Store(int64(time.Since(r.began)))
	return hold.Close()
}

// join reports whether the claim stands in line, and tells the holder if so.
func (r *relay) join(ctx context.Context, pending *lockkeeper.Pending) (waits bool, err error) {
	status, err := pending.Status(ctx)
	if err != nil || status.State != lockkeeper.Waiting {
		return false, err
	}
	r.inLine.Add(1)
	select {
	case r.joined <- struct{}{}:
	default:
	}
	return true, nil
}

// awaitNext returns when somebody is in line, or the time is over.
func (r *relay) awaitNext(ctx context.Context, w *window) {
	for r.inLine.Load() == 0 {
		select {
		case <-r.joined:
		case <-w.over:
			return
		case <-ctx.Done():
			return
		}
	}
}
