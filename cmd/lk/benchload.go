package main

import (
	"context"
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/load"
)

// The loads of lk bench, as --json names them.
const (
	loadDistinct = "distinct"
	loadOne      = "one"
	loadHandOff  = "hand-off"
)

// handOffClients is how many clients take turns where hand-offs are measured: one holds, and the
// others wait.
const handOffClients = 3

// benchGrace is how long after its window a load may take to finish. Then it is given up: somebody
// else holds its path, or the engine hangs.
const benchGrace = 2 * time.Second

// outcome is the result of one load.
type outcome struct {
	load    string
	clients int
	*load.Result
}

// workload is a load before it has run.
type workload struct {
	load    string
	clients int
	work    func(*load.Worker) error
}

// mostWarmUp bounds the warm-up of a load, a tenth of its time.
const mostWarmUp = time.Second

// prepare returns a measurement of that length, warm-up included.
func (w workload) prepare(span time.Duration) *load.Load {
	l := load.New(w.clients)
	l.Warm = min(span/10, mostWarmUp)
	l.Span, l.Grace = span-l.Warm, benchGrace
	l.Work, l.Timed = w.work, true
	return l
}

// measure runs a prepared load. If ctx ends sooner, or the engine hangs, the outcome has what was
// measured until then; a failure is the error.
func (w workload) measure(ctx context.Context, l *load.Load) (*outcome, error) {
	r, err := l.Run(ctx)
	if ctx.Err() != nil || errors.Is(err, load.ErrStuck) {
		err = nil
	}
	return &outcome{w.load, w.clients, r}, err
}

// clientLocker is a load.Locker of one worker at a client, which many may share.
type clientLocker struct {
	client *lockkeeper.Client
	hold   *lockkeeper.Hold
}

// Acquire implements load.Locker.
func (l *clientLocker) Acquire(ctx context.Context, path string) (err error) {
	l.hold, err = l.client.Lock(ctx, path)
	return err
}

// Release implements load.Locker.
func (l *clientLocker) Release(context.Context, string) error { return l.hold.Close() }
