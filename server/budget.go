package server

import (
	"context"
	"sync"
)

// A budget is an amount of something that all connections share.
type budget struct {
	mu      sync.Mutex
	free    int
	changed chan struct{} // closed when there is more; nil if nobody waits
}

// take waits until n are free, or ctx ends.
func (b *budget) take(ctx context.Context, n int) error {
	for {
		b.mu.Lock()
		if b.free >= n {
			b.free -= n
			b.mu.Unlock()
			return nil
		}
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *budget) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}
