package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/load"
)

// relay measures hand-offs: workers take turns on one path, and the holder releases only when another
// worker is in line.
type relay struct {
	path   string
	began  time.Time
	freed  atomic.Int64  // time of the latest release, since began
	inLine atomic.Int32  // workers that are known to wait
	joined chan struct{} // receives a value when a worker may have joined the line
}

func newRelay(path string) *relay {
	return &relay{path: path, began: time.Now(), joined: make(chan struct{}, 1)}
}

// run is the work of one worker.
func (r *relay) run(client *lockkeeper.Client, w *load.Worker) error {
	for !w.Over() {
		if err := r.turn(client, w); err != nil {
			return w.UnlessOver(err)
		}
	}
	return nil
}

// turn waits in line, holds until another worker is in line, and releases.
func (r *relay) turn(client *lockkeeper.Client, w *load.Worker) error {
	ctx := w.Waiting()
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
	// A claim that was not yet in line at the release has not waited there.
	if freed := time.Duration(r.freed.Load()); waits && freed > since {
		w.Took(had.Sub(r.began) - freed)
		w.Done(1)
	}
	r.awaitNext(ctx)
	r.freed.Store(int64(time.Since(r.began)))
	return hold.Close()
}

// join reports whether the claim is in line, and wakes the holder if so.
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

// awaitNext returns when another worker is in line, or ctx ends.
func (r *relay) awaitNext(ctx context.Context) {
	for r.inLine.Load() == 0 {
		select {
		case <-r.joined:
		case <-ctx.Done():
			return
		}
	}
}
