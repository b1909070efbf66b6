package observe

import (
	"context"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// countingStarter is a counting engine that is a lockkeeper.Starter. A call lasts until its answer.
type countingStarter struct {
	*counting
	starter lockkeeper.Starter
}

// StartClaim implements lockkeeper.Starter.
func (c *countingStarter) StartClaim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want,
	answer func(lockkeeper.Status, error)) bool {
	at := time.Now()
	return c.counted(opClaim, c.starter.StartClaim(ctx, k, w, func(st lockkeeper.Status, err error) {
		c.end(opClaim, at, err)
		answer(st, err)
	}))
}

// StartEnd implements lockkeeper.Starter.
func (c *countingStarter) StartEnd(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending,
	answer func(error)) bool {
	at := time.Now()
	return c.counted(opEnd, c.starter.StartEnd(ctx, k, e, func(err error) {
		c.end(opEnd, at, err)
		answer(err)
	}))
}

// counted counts a call, unless the engine left it to the plain method.
func (c *countingStarter) counted(o op, started bool) bool {
	if started {
		c.calls.of[o].n.Add(1)
	}
	return started
}
